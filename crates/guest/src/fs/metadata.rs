//! Attributes by path: reading and changing them.

use transom_wire::{
    attr::Attr,
    device_number,
    linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISGID},
};

use super::{Fs, permission::WRITE};
use crate::{
    Errno, Platform,
    session::Caller,
    volume::{Inode, OpenFile, SetAttributes, SetTime},
};

/// The attributes of a file, as returned by stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata(Attr);

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileType {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

impl FileType {
    /// Returns the type in the bits of a mode.
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & S_IFMT {
            S_IFREG => Self::File,
            S_IFDIR => Self::Directory,
            S_IFLNK => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }
}

impl Metadata {
    pub(super) fn new(attr: Attr) -> Self {
        Self(attr)
    }

    /// Returns a device file's major and minor number.
    pub fn device(&self) -> (u32, u32) {
        device_number::decode(self.0.rdev.get())
    }

    /// Returns all attributes, in the form of the protocol.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// Returns the file type.
    pub fn file_type(&self) -> FileType {
        // A session rejects all other types.
        FileType::of_mode(self.0.mode.get()).unwrap_or(FileType::File)
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size.get()
    }

    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns permissions, set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.0.mode.get() & 0o7777
    }
}

impl<P: Platform> Fs<P> {
    /// Returns the attributes of the file at `path`. Follows symbolic links.
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata, Errno> {
        self.stat(path.as_ref(), true)
    }

    /// Returns the attributes of the file at `path`. Does not follow a symbolic link at its end.
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata, Errno> {
        self.stat(path.as_ref(), false)
    }

    /// Returns whether the file at `path` exists. Errors: those of resolving the path, except ENOENT.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool, Errno> {
        match self.find(path.as_ref(), true) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks whether the caller has all permissions of `mask`: read 4, write 2, execute or search 1. Errors: EACCES if
    /// not.
    pub fn access(&self, path: impl AsRef<[u8]>, mask: u32) -> Result<(), Errno> {
        if mask & !7 != 0 {
            return Err(Errno::INVAL);
        }
        self.walking(|walk| {
            walk.follow(path.as_ref(), true)?;
            self.check(&walk.caller, walk.here(), mask)
        })
    }

    /// Sets permissions, set-id and sticky bits. Errors: EPERM if the caller is not the owner.
    pub fn set_permissions(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.set_attributes(path, true, &set).map(|_| ())
    }

    /// Sets owner and group. Errors: EPERM if only root may.
    pub fn set_owner(
        &self,
        path: impl AsRef<[u8]>,
        uid: Option<u32>,
        gid: Option<u32>,
        is_following: bool,
    ) -> Result<(), Errno> {
        let set = SetAttributes { uid, gid, ..SetAttributes::default() };
        self.set_attributes(path, is_following, &set).map(|_| ())
    }

    /// Sets the access and modification times. Errors: EPERM, or EACCES if both are set to the current time.
    pub fn set_times(
        &self,
        path: impl AsRef<[u8]>,
        atime: SetTime,
        mtime: SetTime,
        is_following: bool,
    ) -> Result<(), Errno> {
        let set = SetAttributes { atime, mtime, ..SetAttributes::default() };
        self.set_attributes(path, is_following, &set).map(|_| ())
    }

    /// Truncates or extends a file to `size` bytes. Errors: EISDIR for a directory, EINVAL for what is not a regular
    /// file.
    pub fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<(), Errno> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.set_attributes(path, true, &set).map(|_| ())
    }

    /// Changes several attributes at once and returns the resulting attributes.
    pub fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        is_following: bool,
        set: &SetAttributes,
    ) -> Result<Metadata, Errno> {
        self.walking(|walk| {
            walk.follow(path.as_ref(), is_following)?;
            self.change_attributes(&walk.caller, walk.here(), None, set)
        })
    }

    /// Checks whether the caller may change `inode`, and changes it. With `file`, changing the size needs no permission
    /// other than that of the open file.
    pub(super) fn change_attributes(
        &self,
        caller: &Caller<'_>,
        inode: &Inode<P>,
        file: Option<&OpenFile<P>>,
        set: &SetAttributes,
    ) -> Result<Metadata, Errno> {
        let mut set = *set;
        if set.size.is_some() {
            self.check_resizing(caller, inode, file)?;
        }
        if self.credentials.uid != 0 {
            self.restrict(caller, inode, &mut set)?;
        }
        self.volume.setattr(caller, inode, file, &set).map(Metadata)
    }

    fn check_resizing(&self, caller: &Caller<'_>, inode: &Inode<P>, file: Option<&OpenFile<P>>) -> Result<(), Errno> {
        if inode.is_directory() {
            return Err(Errno::ISDIR);
        }
        if !inode.is_file() {
            return Err(Errno::INVAL);
        }
        match file {
            Some(file) if file.is_writable() => Ok(()),
            Some(_) => Err(Errno::INVAL),
            None => self.check(caller, inode, WRITE),
        }
    }

    /// Removes from `set` what a caller other than root may not change. Errors: EPERM, EACCES.
    fn restrict(&self, caller: &Caller<'_>, inode: &Inode<P>, set: &mut SetAttributes) -> Result<(), Errno> {
        let attr = inode.getattr_without_times(caller, None)?;
        let credentials = self.credentials();
        let is_owner = attr.uid == credentials.uid;
        if set.uid.is_some_and(|uid| !is_owner || attr.uid != uid) {
            return Err(Errno::PERM);
        }
        if set.gid.is_some_and(|gid| !is_owner || !credentials.is_in_group(gid) && attr.gid != gid) {
            return Err(Errno::PERM);
        }
        if let Some(mode) = &mut set.mode {
            self.check_owner(&attr)?;
            let gid = set.gid.unwrap_or(attr.gid.get());
            if !inode.is_directory() && !credentials.is_in_group(gid) {
                *mode &= !S_ISGID;
            }
        }
        if (set.atime, set.mtime) == (SetTime::Now, SetTime::Now) {
            if !is_owner {
                self.check(caller, inode, WRITE)?;
            }
        } else if (set.atime, set.mtime) != (SetTime::Keep, SetTime::Keep) {
            self.check_owner(&attr)?;
        }
        Ok(())
    }

    fn stat(&self, path: &[u8], is_following: bool) -> Result<Metadata, Errno> {
        self.walking(|walk| {
            walk.follow(path, is_following)?;
            self.volume.getattr(&walk.caller, walk.here()).map(Metadata)
        })
    }
}
