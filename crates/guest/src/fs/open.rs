//! Opening files, by path.

use alloc::sync::Arc;

use transom_wire::linux::{
    O_ACCMODE, O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};

use super::{
    File, Fs,
    path::{self, Last},
    permission::{READ, WRITE},
    walk::Walk,
};
use crate::{Errno, Platform, volume::OpenFile};

/// Options for opening a file; initially all are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    is_readable: bool,
    is_writable: bool,
    flags: u32,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Creates options that are neither readable nor writable.
    pub fn new() -> Self {
        Self { is_readable: false, is_writable: false, flags: 0, mode: 0o666 }
    }

    /// Creates options from the flags of open(2), by their numbers on x86 and most other processors.
    pub fn of_flags(flags: u32) -> Self {
        let access = flags & O_ACCMODE;
        let (is_readable, is_writable) = (access != O_WRONLY, access != O_RDONLY);
        Self { is_readable, is_writable, flags: flags & !O_ACCMODE, mode: 0o666 }
    }

    /// Opens for reading.
    #[must_use]
    pub fn read(self, is_readable: bool) -> Self {
        Self { is_readable, ..self }
    }

    /// Opens for writing.
    #[must_use]
    pub fn write(self, is_writable: bool) -> Self {
        Self { is_writable, ..self }
    }

    /// Opens for writing at the end only.
    #[must_use]
    pub fn append(self, is_appending: bool) -> Self {
        Self { is_writable: self.is_writable || is_appending, ..self.flag(O_APPEND, is_appending) }
    }

    /// Truncates the file to length 0. Needs writing.
    #[must_use]
    pub fn truncate(self, is_truncating: bool) -> Self {
        self.flag(O_TRUNC, is_truncating)
    }

    /// Creates the file if it is absent.
    #[must_use]
    pub fn create(self, is_creating: bool) -> Self {
        self.flag(O_CREAT, is_creating)
    }

    /// Creates the file, which must not exist.
    #[must_use]
    pub fn create_new(self, is_creating: bool) -> Self {
        self.flag(O_CREAT | O_EXCL, is_creating)
    }

    /// Sets the permissions of a new file, which are cleared of the umask; 0666 by default.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// Sets further flags of open(2), such as O_DIRECT, O_SYNC and O_NOFOLLOW.
    #[must_use]
    pub fn custom_flags(self, flags: u32) -> Self {
        Self { flags: self.flags | flags & !O_ACCMODE, ..self }
    }

    fn flag(self, flag: u32, is_set: bool) -> Self {
        let flags = if is_set { self.flags | flag } else { self.flags & !flag };
        Self { flags, ..self }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// Returns the access that the options need, as permission bits.
    fn mask(&self) -> u32 {
        let read = if self.is_readable { READ } else { 0 };
        let write = if self.is_writable || self.has(O_TRUNC) { WRITE } else { 0 };
        read | write
    }

    /// Returns the flags of open(2). Errors: EINVAL if the options include neither reading nor writing.
    fn flags(&self) -> Result<u32, Errno> {
        let access = match (self.is_readable, self.is_writable) {
            (true, false) => O_RDONLY,
            (false, true) => O_WRONLY,
            (true, true) => O_RDWR,
            (false, false) => return Err(Errno::INVAL),
        };
        Ok(self.flags | access)
    }
}

impl<P: Platform> Fs<P> {
    /// Opens a file. A directory can be opened for reading, which gives access to its attributes, locks and durability.
    pub fn open(&self, path: impl AsRef<[u8]>, options: &OpenOptions) -> Result<File<P>, Errno> {
        let flags = options.flags()?;
        let file = match options.has(O_CREAT) {
            true => self.walking(|walk| self.open_creating(walk, path.as_ref(), options, flags))?,
            false => self.walking(|walk| {
                walk.follow(path.as_ref(), !options.has(O_NOFOLLOW))?;
                self.open_here(walk, options, flags)
            })?,
        };
        Ok(File::new(self.clone(), file))
    }

    /// Creates an unnamed regular file in the file system of the directory `path`. Errors: EOPNOTSUPP.
    pub fn tmpfile(&self, path: impl AsRef<[u8]>, options: &OpenOptions) -> Result<File<P>, Errno> {
        let flags = options.flags()?;
        let file = self.walking(|walk| {
            walk.follow(path.as_ref(), true)?;
            walk.check_directory()?;
            self.check_making(&walk.caller, walk.here())?;
            let caller = self.maker(&walk.caller, walk.here())?;
            self.volume.tmpfile(&caller, walk.here(), options.mode, flags)
        })?;
        Ok(File::new(self.clone(), file))
    }

    /// Opens for reading.
    pub fn open_read(&self, path: impl AsRef<[u8]>) -> Result<File<P>, Errno> {
        self.open(path, &OpenOptions::new().read(true))
    }

    /// Creates a file, or truncates it, and opens it for writing.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<File<P>, Errno> {
        self.open(path, &OpenOptions::new().write(true).create(true).truncate(true))
    }

    fn open_creating(
        &self,
        walk: &mut Walk<'_, P>,
        path: &[u8],
        options: &OpenOptions,
        flags: u32,
    ) -> Result<Arc<OpenFile<P>>, Errno> {
        let Last::Name(name, is_slashed) = walk.follow_to_parent(path)? else { return Err(Errno::ISDIR) };
        if is_slashed {
            return Err(Errno::ISDIR);
        }
        let name = path::name(name)?;
        let found = match walk.look(name) {
            Err(Errno::NOENT) => {
                self.check_making(&walk.caller, walk.here())?;
                let caller = self.maker(&walk.caller, walk.here())?;
                match self.volume.create(&caller, walk.here(), name, options.mode, flags) {
                    // Another client has created it in the meantime: open it like any existing file.
                    Err(Errno::EXIST) if !options.has(O_EXCL) => walk.look_again(name)?,
                    result => return result,
                }
            }
            found => found?,
        };
        if options.has(O_CREAT | O_EXCL) {
            return Err(Errno::EXIST);
        }
        if found.is_symlink() && !options.has(O_NOFOLLOW) {
            // The target of a dangling link is created.
            let target = walk.read_link(&found)?;
            return self.open_creating(walk, &target, options, flags);
        }
        if found.is_directory() {
            return Err(Errno::ISDIR);
        }
        walk.enter(found);
        self.open_here(walk, options, flags)
    }

    fn open_here(&self, walk: &Walk<'_, P>, options: &OpenOptions, flags: u32) -> Result<Arc<OpenFile<P>>, Errno> {
        let inode = walk.here();
        if inode.is_symlink() {
            return Err(if options.has(O_DIRECTORY) { Errno::NOTDIR } else { Errno::LOOP });
        }
        if options.has(O_DIRECTORY) && !inode.is_directory() {
            return Err(Errno::NOTDIR);
        }
        if inode.is_directory() && (options.is_writable || options.has(O_TRUNC)) {
            return Err(Errno::ISDIR);
        }
        if !inode.is_directory() && !inode.is_file() {
            // Devices, pipes and sockets are local to the guest.
            return Err(Errno::NXIO);
        }
        self.check(&walk.caller, inode, options.mask())?;
        if options.has(O_NOATIME) {
            self.check_owner(&inode.getattr_without_times(&walk.caller, None)?)?;
        }
        self.volume.open(&walk.caller, inode, flags & !(O_CREAT | O_EXCL))
    }
}
