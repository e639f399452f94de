//! Where workloads work: a directory by system calls, or a share by the guest library. Paths are relative to its root.

mod directory;
mod library;

use std::io;

pub use directory::{Directory, Forget};
pub use library::Library;

use super::{map_how::MapHow, mapping::Mapping};

/// A file system to work on. Several threads may use it at once, each best by [`Place::for_job`].
pub trait Place: Sync {
    /// The same for job `number` of several at once: its own request queue, or its own guest.
    fn for_job(&self, number: u16) -> Box<dyn Place + '_>;
    /// Opens a file.
    fn open(&self, path: &str, how: How) -> io::Result<Box<dyn Opened + '_>>;
    /// Asks for the attributes of what `path` names, a link's own ones for a link.
    fn stat(&self, path: &str) -> io::Result<()>;
    /// Gives the name of each entry of a directory but `.` and `..`, and whether it is a directory.
    fn read_dir(&self, path: &str, each: &mut dyn FnMut(&str, bool) -> io::Result<()>) -> io::Result<()>;
    /// Makes a directory.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// Removes a name of something that is no directory.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Renames, over what has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Sets the mode's permissions.
    fn set_mode(&self, path: &str, mode: u32) -> io::Result<()>;
    /// Maps the first `len_bytes` of a file that is as long. Errors: those of mmap(2), ENODEV for a library without a
    /// window.
    fn map(&self, path: &str, len_bytes: usize, how: MapHow) -> io::Result<Mapping>;
    /// Empties the client's caches of data, names and attributes; what is there was written back before.
    ///
    /// Errors: `Unsupported` where it cannot.
    fn forget(&self) -> io::Result<()>;
}

/// A file that is open.
pub trait Opened {
    /// Fills `bytes` from `offset`. Errors: `UnexpectedEof` at the file's end.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, or at the end of a file that is open for appending.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the contents durable.
    fn sync(&self) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// For writing, else for reading.
    pub is_write: bool,
    /// Made if it is not there, emptied if it is.
    pub is_new: bool,
    /// Writes go to the end.
    pub is_append: bool,
    /// `O_DIRECT`.
    pub is_direct: bool,
}

impl How {
    /// For reading what is there.
    pub const READ: Self = Self { is_write: false, is_new: false, is_append: false, is_direct: false };
    /// For writing where something is.
    pub const WRITE: Self = Self { is_write: true, ..Self::READ };
    /// A new file.
    pub const CREATE: Self = Self { is_new: true, ..Self::WRITE };
    /// More at the end.
    pub const APPEND: Self = Self { is_append: true, ..Self::WRITE };

    /// Around the client's cache, if so.
    #[must_use]
    pub const fn direct(self, is_direct: bool) -> Self {
        Self { is_direct, ..self }
    }
}

impl dyn Place + '_ {
    /// Makes `path` and the directories that lead there.
    pub(super) fn create_dir_all(&self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            match self.create_dir(&path[..end]) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a file of these bytes.
    pub(super) fn write_file(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.open(path, How::CREATE)?.write_all_at(bytes, 0)
    }

    /// Removes `path` and what is below it; nothing, if it is not there.
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
