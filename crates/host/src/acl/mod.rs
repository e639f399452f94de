//! POSIX access control lists as extended attributes carry them: checked, and with their ids translated.
//!
//! The guest's kernel enforces ACLs and turns a minimal one into mode bits; the host keeps what is set. Left for the server
//! are two things: ids inside a list, which follow the translation of owners ([`AclName::to_host`], [`AclName::to_guest`]),
//! and set-group-id, which a change of a list clears where the caller is not in the file's group
//! ([`kill_set_group_id`]). Where several ids of a list become one, the host and the guest use the first entry, as they
//! would for any list with two entries for one id: a translation that squashes makes lists coarse.
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
    /// Which ACL `name`, of an extended attribute on the host, is; `None` for every other attribute.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        match name {
            acl::ACCESS => Some(Self::Access),
            acl::DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// Translates a list that the guest sets, in place: its length does not change.
    ///
    /// Errors: EOPNOTSUPP for an unknown version, EINVAL for what is no list, E2BIG beyond the size of any attribute,
    /// EPERM for an id that is forbidden. `value` is then as it was, up to some entry. An empty value removes the list.
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

    /// Translates a list that the host has, in place: its length does not change.
    ///
    /// Errors: EIO where the host's value is no list.
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

    /// Whether SETXATTR with these flags of its extension clears set-group-id: it does so for an access list alone.
    ///
    /// Other bits of `setxattr_flags` are unknown and ignored.
    pub(crate) fn kills_set_group_id(self, setxattr_flags: u32) -> bool {
        self == Self::Access && setxattr_flags & SETXATTR_ACL_KILL_SGID != 0
    }
}

/// Clears set-group-id of the inode behind `fd`, where it is still set, after an access list was set for a caller who is not
/// in the file's group.
///
/// Setting the list without CAP_FSETID clears it only where the daemon is not in the file's group either, and root is in
/// the group of most files; hence this second step. A change of the mode between the two calls by somebody else is lost.
pub(crate) fn kill_set_group_id(proc_fds: &ProcFds, fd: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(statx(&fd, AtFlags::empty(), StatxFlags::MODE)?.stx_mode.into());
    if !mode.contains(Mode::SGID) {
        return Ok(());
    }
    proc_fds.chmod(fd, mode - Mode::SGID)
}

/// Replaces the id of each entry by what `id_of` answers.
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
