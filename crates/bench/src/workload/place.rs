//! The file system under test: a directory by system calls, or a share by the guest library. Paths are relative to its
//! root.

mod directory;
mod library;

use std::io;

pub use directory::{Directory, Forget};
pub use library::Library;

use super::{map_how::MapHow, mapping::Mapping};

/// A file system. Several threads may use it at once, preferably each through [`Storage::for_job`].
pub trait Storage: Sync {
    /// Returns the same file system for job `number` of several at once, with its own request queue or its own guest.
    fn for_job(&self, number: u16) -> Box<dyn Storage + '_>;
    /// Opens a file.
    fn open(&self, path: &str, how: How) -> io::Result<Box<dyn Opened + '_>>;
    /// Gets the attributes of the file at `path`, without following a final symlink.
    fn stat(&self, path: &str) -> io::Result<()>;
    /// Calls `each` with the name of each entry of a directory except `.` and `..`, and whether it is a directory.
    fn read_dir(&self, path: &str, each: &mut dyn FnMut(&str, bool) -> io::Result<()>) -> io::Result<()>;
    /// Creates a directory.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Removes the name of a file that is not a directory.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Renames, replacing an existing file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Sets the permissions.
    fn set_mode(&self, path: &str, mode: u32) -> io::Result<()>;
    /// Maps the first `len_bytes` of a file that is at least as long.
    ///
    /// # Errors
    /// Those of mmap(2); `ENODEV` for a library without a window.
    fn map(&self, path: &str, len_bytes: usize, how: MapHow) -> io::Result<Mapping>;
    /// Drops the client's caches of data, names and attributes. Everything must have been written back.
    ///
    /// # Errors
    /// `Unsupported` if that is impossible.
    fn forget(&self) -> io::Result<()>;
}

/// An open file.
pub trait Opened {
    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` at the file's end.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, or at the end of a file that is open for appending.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the contents durable.
    fn sync(&self) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Open for writing, otherwise for reading.
    pub is_write: bool,
    /// Create the file, or truncate it if it exists.
    pub is_new: bool,
    /// Append.
    pub is_append: bool,
    /// `O_DIRECT`.
    pub is_direct: bool,
}

impl How {
    /// Read an existing file.
    pub const READ: Self = Self { is_write: false, is_new: false, is_append: false, is_direct: false };
    /// Write to an existing file.
    pub const WRITE: Self = Self { is_write: true, ..Self::READ };
    /// Create a file.
    pub const CREATE: Self = Self { is_new: true, ..Self::WRITE };
    /// Append to a file.
    pub const APPEND: Self = Self { is_append: true, ..Self::WRITE };

    /// Sets whether to bypass the client's cache.
    #[must_use]
    pub const fn direct(self, is_direct: bool) -> Self {
        Self { is_direct, ..self }
    }
}

impl dyn Storage + '_ {
    /// Creates `path` and its parent directories.
    pub(super) fn create_dir_all(&self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            match self.create_dir(&path[..end]) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates a file with these bytes.
    pub(super) fn write_file(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.open(path, How::CREATE)?.write_all_at(bytes, 0)
    }

    /// Removes `path` and everything below it. Does nothing if it does not exist.
    pub(super) fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        let mut entries = Vec::new();
        match self.read_dir(path, &mut |name, is_dir| {
            entries.push((format!("{path}/{name}"), is_dir));
            Ok(())
        }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        for (path, is_dir) in entries {
            if is_dir { self.remove_dir_all(&path)? } else { self.remove_file(&path)? }
        }
        self.remove_dir(path)
    }
}
