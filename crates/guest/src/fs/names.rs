//! Creating, moving and removing names, by path.

use alloc::{sync::Arc, vec::Vec};

use transom_wire::{
    Name,
    linux::{RENAME_EXCHANGE, RENAME_NOREPLACE},
};

use super::{
    Fs,
    path::{self, Last},
    permission::WRITE,
    walk::Walk,
};
use crate::{Errno, Platform, session::Caller, volume::Inode};

impl<P: Platform> Fs<P> {
    /// Creates a directory with permissions `mode`, cleared of the umask.
    pub fn create_dir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        self.make(path.as_ref(), true, |caller, parent, name| self.volume.mkdir(caller, parent, name, mode))
    }

    /// Creates a directory and its missing parents. Succeeds if the directory exists.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        let path = path.as_ref();
        let made = self.create_dir(path, mode);
        if made != Err(Errno::NOENT) {
            return self.existing_dir(path, made);
        }
        let mut made = made;
        let mut rest = path;
        while let Some((_, behind)) = path::split_first(rest) {
            rest = behind;
            let above = &path[..path.len() - rest.len()];
            made = self.existing_dir(above, self.create_dir(above, mode));
            if made.is_err() {
                break;
            }
        }
        made
    }

    /// Creates a file: `mode` holds type and permissions, `rdev` the device in the kernel's 32-bit form. Errors: EPERM
    /// for a device if the caller is not root.
    pub fn mknod(&self, path: impl AsRef<[u8]>, mode: u32, rdev: u32) -> Result<(), Errno> {
        if matches!(mode & 0o170_000, 0o020_000 | 0o060_000) && self.credentials.uid != 0 {
            return Err(Errno::PERM);
        }
        self.make(path.as_ref(), false, |caller, parent, name| self.volume.mknod(caller, parent, name, mode, rdev))
    }

    /// Creates a symbolic link at `path` with the target `target`.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        let target = target.as_ref();
        self.make(path.as_ref(), false, |caller, parent, name| self.volume.symlink(caller, parent, name, target))
    }

    /// Creates the hard link `new` to the file `old`; does not follow a symbolic link at the end of `old`. Errors:
    /// EPERM for a directory.
    pub fn hard_link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        let inode = self.find(old.as_ref(), false)?;
        self.link_inode(&inode, new.as_ref())
    }

    /// Creates the hard link `new` to an inode.
    pub fn link_inode(&self, inode: &Arc<Inode<P>>, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.make(new.as_ref(), false, |caller, parent, name| {
            if inode.is_directory() {
                return Err(Errno::PERM);
            }
            self.volume.link(caller, inode, parent, name)
        })
    }

    /// Returns the target of the symbolic link `path`. Errors: EINVAL if it is not a symbolic link.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Errno> {
        self.walking(|walk| {
            walk.follow(path.as_ref(), false)?;
            if !walk.here().is_symlink() {
                return Err(Errno::INVAL);
            }
            self.volume.readlink(&walk.caller, walk.here()).map(|target| target.to_vec())
        })
    }

    /// Removes the name of a file that is not a directory. Errors: EISDIR.
    pub fn remove_file(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.walking(|walk| {
            let Last::Name(name, is_slashed) = walk.follow_to_parent(path.as_ref())? else {
                return Err(Errno::ISDIR);
            };
            let name = path::name(name)?;
            if is_slashed {
                let is_directory = walk.look(name)?.is_directory();
                return Err(if is_directory { Errno::ISDIR } else { Errno::NOTDIR });
            }
            self.check_victim(walk, name)?;
            self.volume.unlink(&walk.caller, walk.here(), name)
        })
    }

    /// Removes an empty directory. Errors: ENOTEMPTY, ENOTDIR, EINVAL for `.`, EBUSY for the root.
    pub fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.walking(|walk| {
            let name = dir_name(walk.follow_to_parent(path.as_ref())?)?;
            self.check_victim(walk, name)?;
            self.volume.rmdir(&walk.caller, walk.here(), name)
        })
    }

    /// Renames `old` to `new`, replacing an existing file.
    pub fn rename(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.rename_with(old, new, 0)
    }

    /// Renames `old` to `new` with the flags of renameat2(2): RENAME_NOREPLACE (1), RENAME_EXCHANGE (2),
    /// RENAME_WHITEOUT (4).
    pub fn rename_with(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>, flags: u32) -> Result<(), Errno> {
        if flags & !7 != 0 || flags & RENAME_EXCHANGE != 0 && flags != RENAME_EXCHANGE {
            return Err(Errno::INVAL);
        }
        self.walking(|from| {
            let mut to = from.begin_anew();
            let old = from.follow_to_parent(old.as_ref())?;
            let new = to.follow_to_parent(new.as_ref())?;
            let Last::Name(old, is_old_slashed) = old else { return Err(Errno::BUSY) };
            let Last::Name(new, is_new_slashed) = new else {
                return Err(if flags & RENAME_NOREPLACE != 0 { Errno::EXIST } else { Errno::BUSY });
            };
            let (old, new) = (path::name(old)?, path::name(new)?);
            if is_old_slashed || is_new_slashed {
                let is_directory = from.look(old)?.is_directory();
                if !is_directory {
                    return Err(Errno::NOTDIR);
                }
            }
            self.check_move(from, old, &to, new, flags)?;
            self.volume.rename(&from.caller, (from.here(), old), (to.here(), new), flags)
        })
    }

    /// Returns the absolute path of the file at `path`, without symbolic links, `.` and `..`.
    pub fn canonicalize(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Errno> {
        let names = self.walking(|walk| {
            walk.record();
            walk.follow(path.as_ref(), true)?;
            Ok(walk.names())
        })?;
        let mut canonical = Vec::new();
        for name in &names {
            canonical.push(b'/');
            canonical.extend_from_slice(name);
        }
        if canonical.is_empty() {
            canonical.push(b'/');
        }
        Ok(canonical)
    }

    /// Returns the path of the current directory, by the names that led to it.
    pub fn current_dir(&self) -> Vec<u8> {
        let names = self.current_names.join(&b'/');
        [b"/", &names[..]].concat()
    }

    /// Resolves the parent of `path`, checks permissions, and runs `make` there.
    fn make<T>(
        &self,
        path: &[u8],
        is_directory: bool,
        make: impl Fn(&Caller<'_>, &Arc<Inode<P>>, Name<'_>) -> Result<T, Errno>,
    ) -> Result<(), Errno> {
        self.walking(|walk| {
            let Last::Name(name, is_slashed) = walk.follow_to_parent(path)? else { return Err(Errno::EXIST) };
            let name = path::name(name)?;
            if is_slashed && !is_directory {
                return Err(walk.look(name).map_or_else(|error| error, |_| Errno::EXIST));
            }
            if let Err(error) = self.check_making(&walk.caller, walk.here()) {
                // EEXIST takes precedence.
                return Err(walk.look(name).map_or(error, |_| Errno::EXIST));
            }
            let caller = self.maker(&walk.caller, walk.here())?;
            make(&caller, walk.here(), name).map(|_| ())
        })
    }

    /// Returns success if `path` is already a directory that could not be created for that reason.
    fn existing_dir(&self, path: &[u8], made: Result<(), Errno>) -> Result<(), Errno> {
        match made {
            Err(Errno::EXIST) if self.metadata(path)?.is_dir() => Ok(()),
            made => made,
        }
    }

    /// Checks whether the caller may remove `name` from the directory in which `walk` stands.
    fn check_victim(&self, walk: &Walk<'_, P>, name: Name<'_>) -> Result<(), Errno> {
        if self.credentials.uid == 0 {
            return Ok(());
        }
        self.check_removing(&walk.caller, walk.here(), &*walk.look(name)?)
    }

    fn check_move(
        &self,
        from: &Walk<'_, P>,
        old: Name<'_>,
        to: &Walk<'_, P>,
        new: Name<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        if self.credentials.uid == 0 {
            return Ok(());
        }
        let moved = from.look(old)?;
        self.check_removing(&from.caller, from.here(), &moved)?;
        let victim = match to.look(new) {
            Ok(victim) => {
                self.check_removing(&to.caller, to.here(), &victim)?;
                Some(victim)
            }
            Err(Errno::NOENT) => {
                self.check_making(&to.caller, to.here())?;
                None
            }
            Err(error) => return Err(error),
        };
        if Arc::ptr_eq(from.here(), to.here()) {
            return Ok(());
        }
        // The `..` of a directory changes with its parent.
        let exchanged = victim.filter(|_| flags & RENAME_EXCHANGE != 0);
        for directory in [Some(moved), exchanged].iter().flatten().filter(|inode| inode.is_directory()) {
            self.check(&from.caller, directory, WRITE)?;
        }
        Ok(())
    }
}

/// Returns the name of a directory that is to be removed or renamed. Errors: EINVAL for `.`, ENOTEMPTY for `..`, EBUSY
/// for the root.
pub(super) fn dir_name(last: Last<'_>) -> Result<Name<'_>, Errno> {
    match last {
        Last::Name(name, _) => path::name(name),
        Last::Here => Err(Errno::INVAL),
        Last::Above => Err(Errno::NOTEMPTY),
        Last::Root => Err(Errno::BUSY),
    }
}
