//! Extended attributes, by path. The server decides about access to them, except for user attributes, which follow the
//! mode.

use alloc::{sync::Arc, vec::Vec};

use transom_wire::{acl::ACCESS, ops::xattr::SETXATTR_ACL_KILL_SGID};

use super::{
    Fs,
    permission::{READ, WRITE},
};
use crate::{Errno, Platform, session::Caller, volume::Inode};

impl<P: Platform> Fs<P> {
    /// Returns the value of the attribute `name`. Errors: ENODATA if it does not exist.
    pub fn get_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        is_following: bool,
    ) -> Result<Vec<u8>, Errno> {
        let (inode, caller, name) = (self.find(path.as_ref(), is_following)?, self.caller(), name.as_ref());
        self.check_xattr(&caller, &inode, name, READ)?;
        Self::read_sized(|room| self.volume.getxattr(&caller, &inode, name, room))
    }

    /// Returns the names of the attributes.
    pub fn list_xattr(&self, path: impl AsRef<[u8]>, is_following: bool) -> Result<Vec<Vec<u8>>, Errno> {
        let (inode, caller) = (self.find(path.as_ref(), is_following)?, self.caller());
        let list = Self::read_sized(|room| self.volume.listxattr(&caller, &inode, room))?;
        Ok(list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Sets the attribute `name`; `flags` are those of setxattr(2).
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        flags: u32,
        is_following: bool,
    ) -> Result<(), Errno> {
        let (inode, caller, name) = (self.find(path.as_ref(), is_following)?, self.caller(), name.as_ref());
        self.check_xattr(&caller, &inode, name, WRITE)?;
        let setxattr_flags = self.setxattr_flags(&caller, &inode, name)?;
        self.volume.setxattr(&caller, &inode, name, value, flags, setxattr_flags)
    }

    /// Removes the attribute `name`. Errors: ENODATA if it does not exist.
    pub fn remove_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        is_following: bool,
    ) -> Result<(), Errno> {
        let (inode, caller, name) = (self.find(path.as_ref(), is_following)?, self.caller(), name.as_ref());
        self.check_xattr(&caller, &inode, name, WRITE)?;
        self.volume.removexattr(&caller, &inode, name)
    }

    /// Returns the flag for clearing the set-group-id bit, which happens if a caller outside the file's group sets its
    /// access control list.
    fn setxattr_flags(&self, caller: &Caller<'_>, inode: &Inode<P>, name: &[u8]) -> Result<u32, Errno> {
        if self.credentials.uid == 0 || name != ACCESS {
            return Ok(0);
        }
        let gid = inode.getattr_without_times(caller, None)?.gid.get();
        Ok(if self.credentials.is_in_group(gid) { 0 } else { SETXATTR_ACL_KILL_SGID })
    }

    /// Errors: EPERM for another user's attribute, or for a user attribute of a file that cannot have one; EACCES.
    fn check_xattr(&self, caller: &Caller<'_>, inode: &Arc<Inode<P>>, name: &[u8], mask: u32) -> Result<(), Errno> {
        let is_root = self.credentials.uid == 0;
        if name.starts_with(b"user.") {
            if !inode.is_file() && !inode.is_directory() {
                return Err(if mask == READ { Errno::NODATA } else { Errno::PERM });
            }
            return self.check(caller, inode, mask);
        }
        if name.starts_with(b"trusted.") && !is_root {
            return Err(if mask == READ { Errno::NODATA } else { Errno::PERM });
        }
        if mask == WRITE && !is_root {
            return self.check_owner(&inode.getattr_without_times(caller, None)?);
        }
        Ok(())
    }
}
