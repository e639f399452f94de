//! Extended attributes, with the rights that a kernel checks by their prefix (xattr(7)).

use transom_conformance::client::{Errno, XattrFlags};
use transom_wire::{NodeId, attr::Attr};

use super::{
    errno::{Result, from_guest},
    process::Process,
    rights::{self, READ, WRITE},
};

/// XATTR_SIZE_MAX.
const VALUE_LEN_MAX: usize = 65_536;
/// XATTR_LIST_MAX.
const LIST_LEN_MAX: usize = 65_536;

impl Process<'_> {
    pub(crate) fn set_xattr(&self, node: NodeId, attr: &Attr, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_LEN_MAX {
            return Err(Errno::TOOBIG);
        }
        if flags & !(XattrFlags::CREATE | XattrFlags::REPLACE).bits() != 0 {
            return Err(Errno::INVAL);
        }
        self.check_xattr(attr, name, WRITE)?;
        self.vfs.session.setxattr(&self.caller(), node, name, value, flags, 0).map_err(from_guest)
    }

    pub(crate) fn get_xattr(&self, node: NodeId, attr: &Attr, name: &[u8], buf: &mut [u8]) -> Result<usize> {
        check_name(name)?;
        self.check_xattr(attr, name, READ)?;
        self.vfs.session.getxattr(&self.caller(), node, name, buf).map_err(from_guest)
    }

    pub(crate) fn list_xattr(&self, node: NodeId, buf: &mut [u8]) -> Result<usize> {
        let mut list = vec![0; LIST_LEN_MAX];
        let len = self.vfs.session.listxattr(&self.caller(), node, &mut list).map_err(from_guest)?;
        let is_shown = |name: &&[u8]| rights::is_privileged(&self.who) || !name.starts_with(b"trusted.");
        let shown: Vec<u8> =
            list[..len].split_inclusive(|&byte| byte == 0).filter(is_shown).flatten().copied().collect();
        if buf.is_empty() {
            return Ok(shown.len());
        }
        buf.get_mut(..shown.len()).ok_or(Errno::RANGE)?.copy_from_slice(&shown);
        Ok(shown.len())
    }

    pub(crate) fn remove_xattr(&self, node: NodeId, attr: &Attr, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.check_xattr(attr, name, WRITE)?;
        self.vfs.session.removexattr(&self.caller(), node, name).map_err(from_guest)
    }

    fn check_xattr(&self, attr: &Attr, name: &[u8], wanted: u32) -> Result<()> {
        let refusal = if wanted == READ { Errno::NODATA } else { Errno::PERM };
        if name.starts_with(b"security.") && wanted == WRITE && !rights::is_privileged(&self.who) {
            return Err(Errno::PERM);
        }
        if name.starts_with(b"system.") || name.starts_with(b"security.") {
            return Ok(());
        }
        if name.starts_with(b"trusted.") {
            return if rights::is_privileged(&self.who) { Ok(()) } else { Err(refusal) };
        }
        if name.starts_with(b"user.") {
            let kind = attr.mode.get() & 0o170_000;
            if kind != 0o100_000 && kind != 0o040_000 {
                return Err(refusal);
            }
            let is_sticky_directory = kind == 0o040_000 && attr.mode.get() & 0o1000 != 0;
            if is_sticky_directory && wanted == WRITE && !rights::is_owner(&self.who, attr) {
                return Err(Errno::PERM);
            }
        }
        self.check(attr, wanted)
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > 255 { Err(Errno::RANGE) } else { Ok(()) }
}
