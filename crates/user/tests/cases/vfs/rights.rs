//! Who may do what, by owner, group and mode: what a guest's kernel decides before it asks the server.
//!
//! Source: path_resolution(7), inode(7), chmod(2), unlink(2).

use transom_conformance::client::{Errno, Identity};
use transom_wire::attr::Attr;

use super::errno::Result;

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

pub(crate) fn is_directory(attr: &Attr) -> bool {
    attr.mode.get() & 0o170_000 == 0o040_000
}

pub(crate) fn is_symlink(attr: &Attr) -> bool {
    attr.mode.get() & 0o170_000 == 0o120_000
}

pub(crate) fn is_in_group(who: &Identity, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

/// Root, who may read and write everything, and execute what anybody may.
pub(crate) fn is_privileged(who: &Identity) -> bool {
    who.uid == 0
}

pub(crate) fn is_owner(who: &Identity, attr: &Attr) -> bool {
    is_privileged(who) || who.uid == attr.uid.get()
}

/// EACCES unless `who` may do all of `wanted` with the inode.
pub(crate) fn check(who: &Identity, attr: &Attr, wanted: u32) -> Result<()> {
    let mode = attr.mode.get();
    if is_privileged(who) {
        let is_executable = is_directory(attr) || mode & 0o111 != 0;
        return if wanted & EXECUTE == 0 || is_executable { Ok(()) } else { Err(Errno::ACCESS) };
    }
    let granted = if who.uid == attr.uid.get() {
        mode >> 6
    } else if is_in_group(who, attr.gid.get()) {
        mode >> 3
    } else {
        mode
    };
    if wanted & !granted == 0 { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether `who` may remove `victim` from the directory, or put another in its place.
pub(crate) fn check_removal(who: &Identity, directory: &Attr, victim: &Attr) -> Result<()> {
    check(who, directory, WRITE | EXECUTE)?;
    let is_theirs = is_owner(who, victim) || who.uid == directory.uid.get();
    if directory.mode.get() & STICKY != 0 && !is_theirs { Err(Errno::PERM) } else { Ok(()) }
}

/// The mode that `who` gives a file of this group with chmod(2).
pub(crate) fn chmod_mode(who: &Identity, attr: &Attr, mode: u32) -> u32 {
    let keeps_set_gid = is_privileged(who) || is_in_group(who, attr.gid.get());
    mode & if keeps_set_gid { 0o7777 } else { 0o7777 & !SET_GID }
}

/// Whether a change of the data by `who` takes set-id bits away.
pub(crate) fn loses_set_id(who: &Identity, attr: &Attr) -> bool {
    !is_privileged(who) && attr.mode.get() & 0o170_000 == 0o100_000 && attr.mode.get() & (SET_UID | SET_GID) != 0
}
