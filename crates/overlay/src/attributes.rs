//! Modes, owners, times and extended attributes, as far as a commit carries them over.

use std::{collections::BTreeMap, ffi::CString, io};

use rustix::{
    fs::{
        AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, getxattr, listxattr, removexattr,
        setxattr, utimensat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{Kind, Meta, tree::Node};

/// The kernel's own notes about a layer.
const NOTES: &[u8] = b"user.overlay.";
/// Beside attributes of users, access control lists are carried over. Labels and capabilities are the host's business.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// The kernel's limit for a value, and for the list of names.
const LEN_MAX: usize = 64 << 10;

type Extended = BTreeMap<CString, Vec<u8>>;

/// Returns the extended attributes of a file or directory; other kinds have none that count.
pub(crate) fn extended(node: &Node) -> io::Result<Extended> {
    if !matches!(node.meta.kind, Kind::File | Kind::Directory) {
        return Ok(Extended::new());
    }
    let path = node.path();
    let mut names = vec![0; LEN_MAX];
    let len = match listxattr(&*path, &mut names[..]) {
        Ok(len) => len,
        // The file system has none.
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let names = names[..len].split(|&byte| byte == 0).filter(|name| is_carried(name));
    let value = |name: &[u8]| {
        let name = CString::new(name).map_err(io::Error::other)?;
        let mut value = vec![0; LEN_MAX];
        let len = getxattr(&*path, &name, &mut value[..])?;
        value.truncate(len);
        Ok((name, value))
    };
    names.map(value).collect()
}

fn is_carried(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(NOTES) || LISTS.contains(&name)
}

/// Returns whether a directory of the upper layer hides what the lower one has at its place.
pub(crate) fn is_opaque(node: &Node) -> bool {
    let mut value = [0; 8];
    matches!(getxattr(&*node.path(), c"user.overlay.opaque", &mut value[..]), Ok(1) if value[0] == b'y')
}

/// Returns whether owner, mode and extended attributes of `upper` are those of `lower`. Owners count for root only, who
/// can set them.
pub(crate) fn are_equal(upper: &Node, lower: &Node) -> io::Result<bool> {
    let (from, to) = (&upper.meta, &lower.meta);
    // A link's mode means nothing.
    let is_mode_equal = from.mode == to.mode || from.committed_mode() == to.mode || from.kind == Kind::Symlink;
    let is_owner_equal = !geteuid().is_root() || (from.uid, from.gid) == (to.uid, to.gid);
    Ok(is_mode_equal && is_owner_equal && are_extended_equal(upper, lower)?)
}

/// Returns whether extended attributes of `upper` are those of `lower`.
pub(crate) fn are_extended_equal(upper: &Node, lower: &Node) -> io::Result<bool> {
    Ok(extended(upper)? == extended(lower)?)
}

/// Gives `to` the owner, mode, extended attributes and times of `from`.
pub(crate) fn carry(from: &Node, to: &Node) -> io::Result<()> {
    let meta = &from.meta;
    if geteuid().is_root() && (meta.uid, meta.gid) != (to.meta.uid, to.meta.gid) {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        chownat(to, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    if meta.kind != Kind::Symlink {
        carry_extended(from, to)?;
        let is_kept = meta.mode == to.meta.mode && (meta.uid, meta.gid) == (to.meta.uid, to.meta.gid);
        let mode = if is_kept { meta.mode } else { meta.committed_mode() };
        chmod(&*to.path(), Mode::from_raw_mode(mode))?;
    }
    set_times(to, meta)
}

fn carry_extended(from: &Node, to: &Node) -> io::Result<()> {
    let (wanted, present) = (extended(from)?, extended(to)?);
    let path = to.path();
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        removexattr(&*path, name)?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| present.get(*name) != Some(*value)) {
        setxattr(&*path, name, value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Sets the times of access and of the last change.
pub(crate) fn set_times(node: &Node, meta: &Meta) -> io::Result<()> {
    let time =
        |(seconds, nanoseconds): (i64, u64)| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.try_into().unwrap_or(0) };
    let times = Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) };
    Ok(utimensat(node, "", &times, AtFlags::EMPTY_PATH)?)
}
