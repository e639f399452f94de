//! Conversion of the host's `statx` to FUSE attributes, and of device numbers back.

use std::{os::fd::AsFd, time::Duration};

use rustix::fs::Statx;
use transom_wire::{
    attr::{Attr, AttrOut},
    device_number,
};

use super::{Passthrough, validity::attribute_validity};
use crate::{
    Errno,
    idmap::{GuestGid, GuestUid, HostGid, HostUid},
};

impl Passthrough {
    /// Returns the attributes of the inode behind `fd` as the guest sees them.
    pub(super) fn attr(&self, fd: impl AsFd, stat: &Statx) -> Attr {
        let mut attr = self.attr_without_dax(stat);
        self.mark_dax(fd, stat, &mut attr);
        attr
    }

    /// Returns the attributes as a guest without a window sees them.
    pub(super) fn attr_without_dax(&self, stat: &Statx) -> Attr {
        Attr {
            ino: stat.stx_ino.into(),
            size: stat.stx_size.into(),
            blocks: stat.stx_blocks.into(),
            atime: stat.stx_atime.tv_sec.cast_unsigned().into(),
            mtime: stat.stx_mtime.tv_sec.cast_unsigned().into(),
            ctime: stat.stx_ctime.tv_sec.cast_unsigned().into(),
            atimensec: stat.stx_atime.tv_nsec.into(),
            mtimensec: stat.stx_mtime.tv_nsec.into(),
            ctimensec: stat.stx_ctime.tv_nsec.into(),
            mode: u32::from(stat.stx_mode).into(),
            nlink: stat.stx_nlink.into(),
            uid: self.guest_uid(stat.stx_uid).0.into(),
            gid: self.guest_gid(stat.stx_gid).0.into(),
            rdev: device_number::encode(stat.stx_rdev_major, stat.stx_rdev_minor).into(),
            blksize: stat.stx_blksize.into(),
            flags: 0.into(),
        }
    }

    /// Returns the attributes with their validity.
    pub(super) fn attr_out(&self, fd: impl AsFd, stat: &Statx) -> AttrOut {
        let (attr_valid, attr_valid_nsec) = seconds(attribute_validity(stat, self.validity(stat)));
        AttrOut {
            attr_valid: attr_valid.into(),
            attr_valid_nsec: attr_valid_nsec.into(),
            attr: self.attr(fd, stat),
            ..AttrOut::default()
        }
    }

    pub(super) fn guest_uid(&self, uid: u32) -> GuestUid {
        self.config.owners.uids.to_guest(HostUid(uid))
    }

    pub(super) fn guest_gid(&self, gid: u32) -> GuestGid {
        self.config.owners.gids.to_guest(HostGid(gid))
    }

    /// Translates a guest uid. Errors: EPERM if the guest may not use the id.
    pub(super) fn host_uid(&self, uid: u32) -> Result<HostUid, Errno> {
        self.config.owners.uids.to_host(GuestUid(uid))
    }

    /// Translates a guest gid. Errors: EPERM if the guest may not use the id.
    pub(super) fn host_gid(&self, gid: u32) -> Result<HostGid, Errno> {
        self.config.owners.gids.to_host(GuestGid(gid))
    }
}

/// Returns a duration as FUSE carries it: seconds and nanoseconds.
pub(super) fn seconds(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}
