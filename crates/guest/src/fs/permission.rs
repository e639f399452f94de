//! Permission checks by owner, group and mode bits, and by access control lists ([`acl`](super::acl)).

use transom_wire::{
    attr::Attr,
    linux::{S_IFDIR, S_IFMT, S_ISVTX},
};

use super::{Credentials, Fs};
use crate::{Errno, Platform, session::Caller, volume::Inode};

/// Search a directory, or execute a file.
pub(super) const EXECUTE: u32 = 1;
/// Write a file, or change the names in a directory.
pub(super) const WRITE: u32 = 2;
/// Read.
pub(super) const READ: u32 = 4;

impl<P: Platform> Fs<P> {
    /// Checks access to `inode`. Errors: EACCES if the caller lacks a permission in `mask`, EIO if its access control
    /// list is invalid.
    pub(super) fn check(&self, caller: &Caller<'_>, inode: &Inode<P>, mask: u32) -> Result<(), Errno> {
        // Root needs no attributes, except to execute a file.
        if self.credentials.uid == 0 && (mask & EXECUTE == 0 || inode.is_directory()) {
            return Ok(());
        }
        let attr = inode.getattr_without_times(caller, None)?;
        let may = match self.access_list(caller, inode, &attr)? {
            Some(list) => self.credentials.may_by_list(&list, attr.gid.get(), mask),
            None => Some(self.credentials.may(&attr, mask)),
        };
        if may.ok_or_else(|| self.volume.session().impossible_eio())? { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Errors: EACCES if the caller may not create names in `parent`.
    pub(super) fn check_making(&self, caller: &Caller<'_>, parent: &Inode<P>) -> Result<(), Errno> {
        self.check(caller, parent, WRITE | EXECUTE)
    }

    /// Errors: EACCES if the caller may not change names in `parent`, EPERM if only the owner of `inode` may.
    pub(super) fn check_removing(&self, caller: &Caller<'_>, parent: &Inode<P>, inode: &Inode<P>) -> Result<(), Errno> {
        if self.credentials.uid == 0 {
            return Ok(());
        }
        self.check(caller, parent, WRITE | EXECUTE)?;
        let directory = parent.getattr_without_times(caller, None)?;
        if directory.mode.get() & S_ISVTX == 0 || directory.uid == self.credentials.uid {
            return Ok(());
        }
        self.check_owner(&inode.getattr_without_times(caller, None)?)
    }

    /// Errors: EPERM if the caller is not the owner.
    pub(super) fn check_owner(&self, attr: &Attr) -> Result<(), Errno> {
        if self.credentials.uid == 0 || attr.uid == self.credentials.uid { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Returns the caller, with the group that a new name in `parent` may require.
    pub(super) fn maker<'c>(&self, caller: &Caller<'c>, parent: &Inode<P>) -> Result<Caller<'c>, Errno> {
        if self.credentials.groups.is_empty() {
            return Ok(*caller);
        }
        let gid = parent.getattr_without_times(caller, None)?.gid.get();
        Ok(Caller { group: Some(gid).filter(|gid| self.credentials.groups.contains(gid)), ..*caller })
    }
}

impl Credentials {
    /// Returns whether a file with these attributes and without an access control list allows all of `mask`.
    pub(super) fn may(&self, attr: &Attr, mask: u32) -> bool {
        let mode = attr.mode.get();
        if self.uid == 0 {
            let is_runnable = mode & 0o111 != 0 || mode & S_IFMT == S_IFDIR;
            return mask & EXECUTE == 0 || is_runnable;
        }
        let allowed = if attr.uid == self.uid {
            mode >> 6
        } else if self.is_in_group(attr.gid.get()) {
            mode >> 3
        } else {
            mode
        };
        allowed & mask == mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_class_that_fits_decides() {
        let attr = Attr { mode: 0o100_470.into(), uid: 7.into(), gid: 8.into(), ..Attr::default() };
        let of = |uid, gid, groups: &[u32]| Credentials { uid, gid, groups: groups.into(), ..Credentials::default() };
        assert!(of(7, 8, &[]).may(&attr, READ));
        assert!(!of(7, 8, &[]).may(&attr, WRITE));
        assert!(of(9, 8, &[]).may(&attr, READ | WRITE | EXECUTE));
        assert!(of(9, 1, &[3, 8]).may(&attr, READ | WRITE | EXECUTE));
        assert!(!of(9, 1, &[3]).may(&attr, READ));
    }

    #[test]
    fn root_may_anything_but_run_what_nobody_may() {
        let root = Credentials::default();
        let of = |mode: u32| Attr { mode: mode.into(), uid: 7.into(), ..Attr::default() };
        assert!(root.may(&of(0o100_000), READ | WRITE));
        assert!(!root.may(&of(0o100_000), EXECUTE));
        assert!(root.may(&of(0o100_001), EXECUTE));
        assert!(root.may(&of(0o040_000), EXECUTE));
    }
}
