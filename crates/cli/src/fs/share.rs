//! The share as the commands use it, with the standard library's `Path` and `io::Error`.

use std::{
    ffi::OsString,
    io,
    ops::Range,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::Mode,
    process::{getegid, geteuid, getgroups, getpid, umask},
};
use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    dax::{Dax, DaxOptions},
    fs::{Credentials, File, Fs, OpenOptions, SeekFrom},
    session::SessionConfig,
    volume::{SetAttributes, SetTime},
};
use transom_user::{
    platform::Process,
    share::{Share, ShareError},
};
use transom_wire::linux::RENAME_NOREPLACE;

use super::tree::{Meta, Reader, Tree, Writer};

/// An open share, accessed with the credentials of this process.
pub(super) struct SharedFiles {
    fs: Fs<Process>,
}

/// The result of stat(2).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stat {
    pub(super) ino: u64,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// In units of 512 bytes.
    pub(super) blocks: u64,
    /// Major and minor number of a device.
    pub(super) rdev: (u32, u32),
    /// Seconds and nanoseconds.
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) ctime: (i64, u32),
}

/// The result of statfs(2).
pub(super) struct Space {
    /// In bytes.
    pub(super) block_size: u64,
    pub(super) blocks: u64,
    pub(super) free: u64,
    /// Blocks available to unprivileged users.
    pub(super) available: u64,
    pub(super) inodes: u64,
    pub(super) inodes_free: u64,
}

impl Stat {
    fn kind(&self) -> u32 {
        self.mode & 0o170_000
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == 0o040_000
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.kind() == 0o120_000
    }

    pub(super) fn is_device(&self) -> bool {
        matches!(self.kind(), 0o020_000 | 0o060_000)
    }
}

impl SharedFiles {
    /// Starts a session; `dax` says which files are accessed through the daemon's window, if it has one.
    pub(super) fn new(share: &Share, mode: CacheMode, dax: Dax) -> Result<Self, ShareError> {
        let dax = DaxOptions { dax, ..DaxOptions::default() };
        let volume = share.volume(SessionConfig::default(), CacheOptions { mode, ..CacheOptions::default() }, dax)?;
        Ok(Self { fs: Fs::new(Arc::new(volume)).with_credentials(credentials()) })
    }

    /// Ends the session.
    pub(super) fn end(self) {
        // If DESTROY fails, closing the connection has the same effect.
        let _ = self.fs.volume().session().destroy();
    }

    pub(super) fn stat(&self, path: &Path, follow: bool) -> io::Result<Stat> {
        let path = bytes(path);
        let found = if follow { self.fs.metadata(path) } else { self.fs.symlink_metadata(path) }.map_err(error)?;
        let attr = found.attr();
        Ok(Stat {
            ino: attr.ino.get(),
            mode: attr.mode.get(),
            nlink: attr.nlink.get(),
            uid: attr.uid.get(),
            gid: attr.gid.get(),
            size: attr.size.get(),
            blocks: attr.blocks.get(),
            // Linux packs both into 32 bits.
            rdev: found.device(),
            atime: (attr.atime.get() as i64, attr.atimensec.get()),
            mtime: (attr.mtime.get() as i64, attr.mtimensec.get()),
            ctime: (attr.ctime.get() as i64, attr.ctimensec.get()),
        })
    }

    /// Returns the names in a directory, without `.` and `..`.
    pub(super) fn names(&self, dir: &Path) -> io::Result<Vec<Vec<u8>>> {
        let entries = self.fs.read_dir(bytes(dir)).map_err(error)?;
        entries.map(|entry| entry.map(|entry| entry.name).map_err(error)).collect()
    }

    pub(super) fn space(&self, path: &Path) -> io::Result<Space> {
        let out = self.fs.statfs(bytes(path)).map_err(error)?;
        Ok(Space {
            block_size: out.frsize.get().into(),
            blocks: out.blocks.get(),
            free: out.bfree.get(),
            available: out.bavail.get(),
            inodes: out.files.get(),
            inodes_free: out.ffree.get(),
        })
    }

    pub(super) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_dir(bytes(path)).map_err(error)
    }

    pub(super) fn link(&self, old: &Path, new: &Path) -> io::Result<()> {
        self.fs.hard_link(bytes(old), bytes(new)).map_err(error)
    }

    pub(super) fn mkdir_all(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.fs.create_dir_all(bytes(path), mode).map_err(error)
    }

    pub(super) fn rename_to(&self, from: &Path, to: &Path, replaces: bool) -> io::Result<()> {
        let flags = if replaces { 0 } else { RENAME_NOREPLACE };
        self.fs.rename_with(bytes(from), bytes(to), flags).map_err(error)
    }

    pub(super) fn set_times_to_now(&self, path: &Path) -> io::Result<()> {
        self.fs.set_times(bytes(path), SetTime::Now, SetTime::Now, true).map_err(error)
    }

    /// Opens a file for writing, creates it if necessary, and returns it with its length, which is 0 if `truncates`.
    pub(super) fn open_to_write(&self, path: &Path, truncates: bool) -> io::Result<(File<Process>, u64)> {
        let options = OpenOptions::new().write(true).create(true).truncate(truncates);
        let file = self.fs.open(bytes(path), &options).map_err(error)?;
        let end = file.metadata().map_err(error)?.len();
        Ok((file, end))
    }
}

impl Tree for SharedFiles {
    fn prefix(&self) -> &'static str {
        ":"
    }

    fn metadata(&self, path: &Path, follow: bool) -> io::Result<Meta> {
        let Stat { mode, uid, gid, size, atime, mtime, .. } = self.stat(path, follow)?;
        Ok(Meta { mode, uid, gid, len: size, atime, mtime })
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.fs.canonicalize(bytes(path)).map(|path| OsString::from_vec(path).into()).map_err(error)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<Vec<u8>>> {
        self.names(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.fs.read_link(bytes(path)).map_err(error)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.fs.open_read(bytes(path)).map_err(error)?))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn Writer + '_>> {
        let options = OpenOptions::new().write(true).create_new(true).mode(mode);
        Ok(Box::new(self.fs.open(bytes(path), &options).map_err(error)?))
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.fs.create_dir(bytes(path), mode).map_err(error)
    }

    fn symlink(&self, target: &[u8], path: &Path) -> io::Result<()> {
        self.fs.symlink(target, bytes(path)).map_err(error)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_to(from, to, true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_file(bytes(path)).map_err(error)
    }

    fn finish(&self, path: &Path, meta: &Meta, preserves: bool) -> io::Result<()> {
        if !preserves {
            return Ok(());
        }
        match self.fs.set_owner(bytes(path), Some(meta.uid), Some(meta.gid), false) {
            // Only root may change the owner.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(error(errno)),
        }
        let time = |(seconds, nanoseconds)| SetTime::At(seconds, nanoseconds);
        let (atime, mtime) = (time(meta.atime), time(meta.mtime));
        let set = SetAttributes { mode: Some(meta.mode & 0o7777), atime, mtime, ..SetAttributes::default() };
        self.fs.set_attributes(bytes(path), false, &set).map(drop).map_err(error)
    }
}

impl Reader for File<Process> {
    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len()).map_err(error)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let start = match self.seek(SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // The server does not implement LSEEK: treat the whole file as data.
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
                let len = Reader::len(self)?;
                return Ok((offset < len).then_some(offset..len));
            }
            Err(errno) => return Err(error(errno)),
        };
        Ok(Some(start..self.seek(SeekFrom::Hole(start)).map_err(error)?))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, offset, bytes).map_err(error)
    }
}

impl Writer for File<Process> {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(offset + done as u64, &bytes[done..]).map_err(error)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => done += len,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len).map_err(error)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        File::close(*self).map_err(error)
    }
}

/// Returns the credentials of this process.
fn credentials() -> Credentials {
    // The mask can only be read by setting it; no other thread creates files yet.
    let mask = umask(Mode::empty());
    umask(mask);
    Credentials {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: getgroups().unwrap_or_default().into_iter().map(|gid| gid.as_raw()).collect(),
        pid: getpid().as_raw_nonzero().get().cast_unsigned(),
        umask: mask.bits(),
        ..Credentials::default()
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Converts an error of the guest library, which uses the same numbers.
fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}
