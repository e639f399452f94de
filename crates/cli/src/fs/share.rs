//! The share as the commands use it: paths as the standard library has them, errors as `io::Error`.

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
    cache::CacheOptions,
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

/// A share that this process has mounted, as its own user.
pub(super) struct SharedFiles {
    fs: Fs<Process>,
}

/// What stat(2) tells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stat {
    pub(super) ino: u64,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Of 512 bytes.
    pub(super) blocks: u64,
    /// Major and minor number of a device.
    pub(super) rdev: (u32, u32),
    /// Seconds and nanoseconds.
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) ctime: (i64, u32),
}

/// What statfs(2) tells.
pub(super) struct Space {
    /// In bytes.
    pub(super) block_size: u64,
    pub(super) blocks: u64,
    pub(super) free: u64,
    /// For ordinary users.
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
    /// Begins a session; every file goes through the daemon's window, if it has one, where `dax` says so.
    pub(super) fn new(share: &Share, dax: Dax) -> Result<Self, ShareError> {
        let dax = DaxOptions { dax, ..DaxOptions::default() };
        let volume = share.volume(SessionConfig::default(), CacheOptions::default(), dax)?;
        Ok(Self { fs: Fs::new(Arc::new(volume)).with_credentials(credentials()) })
    }

    /// Ends the session.
    pub(super) fn end(self) {
        // Without an answer the daemon sees the end of the connection, which does the same.
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
            // As Linux packs them into 32 bits.
            rdev: found.device(),
            atime: (attr.atime.get() as i64, attr.atimensec.get()),
            mtime: (attr.mtime.get() as i64, attr.mtimensec.get()),
            ctime: (attr.ctime.get() as i64, attr.ctimensec.get()),
        })
    }

    /// Names, without `.` and `..`.
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

    /// A file for writing, made where it is absent, emptied where asked; and where it ends.
    pub(super) fn open_to_write(&self, path: &Path, empties: bool) -> io::Result<(File<Process>, u64)> {
        let options = OpenOptions::new().write(true).create(true).truncate(empties);
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
            // Only root gives files away.
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
            // A server without LSEEK: all of it is data.
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

/// This process's own.
fn credentials() -> Credentials {
    // Asking for the mask is setting it; there are no threads yet that make files.
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

/// The same number is the same error in both.
fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}
