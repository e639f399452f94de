//! The [`Tree`] trait: what a copy needs of a file tree, implemented for the host and by [`share`](super::share) for a
//! share.

use std::{
    fs::{self, File, Permissions},
    io,
    ops::Range,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps, seek, utimensat};

/// The attributes of an inode that a copy needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) len: u64,
    /// Seconds and nanoseconds.
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
}

/// The types of file that a copy distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl Meta {
    pub(super) fn kind(&self) -> Kind {
        match self.mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Symlink,
            _ => Kind::Other,
        }
    }
}

/// A file tree.
pub(super) trait Tree {
    /// Returns the prefix of its paths in messages.
    fn prefix(&self) -> &'static str;
    fn metadata(&self, path: &Path, follow: bool) -> io::Result<Meta>;
    /// Returns the absolute path without symbolic links, `.` and `..`.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;
    /// Returns the names in a directory, without `.` and `..`.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<Vec<u8>>>;
    fn read_link(&self, path: &Path) -> io::Result<Vec<u8>>;
    fn open(&self, path: &Path) -> io::Result<Box<dyn Reader + '_>>;
    /// Creates a file that must not exist.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writer + '_>>;
    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()>;
    fn symlink(&self, target: &[u8], path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Sets the mode of a file or directory to that of `meta` and, with `preserves`, its times and, if permitted, its
    /// owner.
    fn finish(&self, path: &Path, meta: &Meta, preserves: bool) -> io::Result<()>;
}

/// An open file.
pub(super) trait Reader {
    fn len(&self) -> io::Result<u64>;
    /// Returns the next range of data at or after `offset`, or `None` if only a hole or the end follows.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>>;
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A new file.
pub(super) trait Writer {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Closes the file.
    ///
    /// # Errors
    ///
    /// Returns the error of a write that failed after it had returned.
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// The file system of this machine.
pub(super) struct Host;

impl Tree for Host {
    fn prefix(&self) -> &'static str {
        ""
    }

    fn metadata(&self, path: &Path, follow: bool) -> io::Result<Meta> {
        let found = if follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
        Ok(Meta {
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            len: found.len(),
            atime: (found.atime(), found.atime_nsec() as u32),
            mtime: (found.mtime(), found.mtime_nsec() as u32),
        })
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<Vec<u8>>> {
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name().into_vec())).collect()
    }

    fn read_link(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(path)?.into_os_string().into_vec())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reader>> {
        Ok(Box::new(File::open(path)?))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writer>> {
        Ok(Box::new(File::options().write(true).create_new(true).mode(mode).open(path)?))
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)
    }

    fn symlink(&self, target: &[u8], path: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn finish(&self, path: &Path, meta: &Meta, preserves: bool) -> io::Result<()> {
        if !preserves {
            return Ok(());
        }
        match std::os::unix::fs::lchown(path, Some(meta.uid), Some(meta.gid)) {
            // Only root may change the owner.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        fs::set_permissions(path, Permissions::from_mode(meta.mode & 0o7777))?;
        let time = |(tv_sec, nsec): (i64, u32)| Timespec { tv_sec, tv_nsec: nsec.into() };
        let times = Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) };
        Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

impl Reader for File {
    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let start = match seek(self, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(start..seek(self, SeekFrom::Hole(start))?))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, bytes, offset)
    }
}

impl Writer for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}
