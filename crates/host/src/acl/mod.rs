//! POSIX access control lists in extended attributes: validation and id translation.
//!
//! The guest's kernel enforces ACLs and turns a minimal one into mode bits; the host stores what is set. The server
//! does two things. It translates the ids in a list as it translates owners ([`AclName::to_host`],
//! [`AclName::to_guest`]). And it clears set-group-id when a list is changed by a caller who is not in the file's
//! group ([`kill_set_group_id`]). If a translation maps several ids of a list to one, host and guest use the first
//! entry, as they do for any list with two entries for one id: a translation that squashes ids makes lists coarse.
//!
//! Source: `include/uapi/linux/posix_acl_xattr.h`, acl(5).

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, Mode, StatxFlags},
    io::Errno,
};
use transom_wire::{
    acl::{self, Entry, GROUP, Header, ID_NONE, USER, VERSION},
    limits::XATTR_VALUE_LEN_MAX,
    ops::xattr::SETXATTR_ACL_KILL_SGID,
};
use zerocopy::FromBytes;

use crate::{
    idmap::{GuestGid, GuestUid, HostGid, HostUid, OwnerMap},
    sysfd::{ProcFds, stat::statx},
};

/// The two attributes that are ACLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AclName {
    /// `system.posix_acl_access`
    Access,
    /// `system.posix_acl_default`
    Default,
}

impl AclName {
    /// Returns the ACL that the host's extended attribute `name` holds, or `None` for every other attribute.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        match name {
            acl::ACCESS => Some(Self::Access),
            acl::DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// Translates a list that the guest sets. Works in place, since the length does not change. An empty value removes
    /// the list.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP for an unknown version, EINVAL for a malformed list, E2BIG beyond the size of any attribute, EPERM
    /// for a forbidden id. Some entries of `value` may then be translated already.
    pub(crate) fn to_host(self, value: &mut [u8], map: &OwnerMap) -> Result<(), Errno> {
        translate(value, |entry| {
            let id = entry.id.get();
            let id = match entry.tag.get() {
                USER if id == ID_NONE => return Err(Errno::INVAL),
                GROUP if id == ID_NONE => return Err(Errno::INVAL),
                USER => map.uids.to_host(GuestUid(id))?.0,
                GROUP => map.gids.to_host(GuestGid(id))?.0,
                _ => id,
            };
            Ok(id)
        })
    }

    /// Translates a list from the host. Works in place, since the length does not change.
    ///
    /// # Errors
    ///
    /// EIO if the host's value is not a valid list.
    pub(crate) fn to_guest(self, value: &mut [u8], map: &OwnerMap) -> Result<(), Errno> {
        let translated = translate(value, |entry| {
            let id = entry.id.get();
            Ok(match entry.tag.get() {
                USER => map.uids.to_guest(HostUid(id)).0,
                GROUP => map.gids.to_guest(HostGid(id)).0,
                _ => id,
            })
        });
        translated.map_err(|_| Errno::IO)
    }

    /// Returns whether SETXATTR with these extension flags clears set-group-id, which it does only for an access list.
    ///
    /// Ignores unknown bits of `setxattr_flags`.
    pub(crate) fn kills_set_group_id(self, setxattr_flags: u32) -> bool {
        self == Self::Access && setxattr_flags & SETXATTR_ACL_KILL_SGID != 0
    }
}

/// Clears the set-group-id bit of the inode behind `fd`, if it is still set, after a caller outside the file's group
/// has set an access list.
///
/// Setting the list without CAP_FSETID clears the bit only if the daemon is not in the file's group either, and root
/// is in the group of most files; hence this second step. If somebody else changes the mode between the two calls,
/// that change is lost.
pub(crate) fn kill_set_group_id(proc_fds: &ProcFds, fd: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(statx(&fd, AtFlags::empty(), StatxFlags::MODE)?.stx_mode.into());
    if !mode.contains(Mode::SGID) {
        return Ok(());
    }
    proc_fds.chmod(fd, mode - Mode::SGID)
}

/// Replaces the id of each entry with the result of `id_of`.
fn translate(value: &mut [u8], id_of: impl Fn(&Entry) -> Result<u32, Errno>) -> Result<(), Errno> {
    if value.is_empty() {
        return Ok(());
    }
    if value.len() > XATTR_VALUE_LEN_MAX {
        return Err(Errno::TOOBIG);
    }
    let (header, entries) = Header::mut_from_prefix(value).map_err(|_| Errno::INVAL)?;
    if header.version.get() != VERSION {
        return Err(Errno::OPNOTSUPP);
    }
    for entry in <[Entry]>::mut_from_bytes(entries).map_err(|_| Errno::INVAL)? {
        entry.id = id_of(entry)?.into();
    }
    Ok(())
}

#[cfg(test)]
#[path = "acl_test.rs"]
mod acl_test;
