//! STATX.

use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp};
use transom_wire::{
    operation,
    ops::{
        init::InitFlags,
        statx::{self, StatxOut, SxTime},
    },
};

use crate::{
    Errno,
    passthrough::{Passthrough, attr::seconds, validity::attribute_validity},
    server::{Call, Serve},
    sysfd::stat,
};

impl Serve<operation::Statx> for Passthrough {
    /// # Errors
    ///
    /// ENOSYS if Linux would otherwise request attributes that it has cached; it then sends GETATTR. Linux always
    /// requests the birth time; a guest that does not gets a reply.
    fn serve(&self, call: Call<'_, operation::Statx>) -> Result<StatxOut, Errno> {
        let arg = &call.arg;
        if arg.sx_mask.get() & StatxFlags::BTIME.bits() != 0 && !self.answers_statx() {
            return Err(Errno::NOSYS);
        }
        let sync =
            AtFlags::from_bits_retain(arg.sx_flags.get()) & (AtFlags::STATX_FORCE_SYNC | AtFlags::STATX_DONT_SYNC);
        // The reply has no field for what the host may add later.
        let mask = StatxFlags::from_bits_retain(arg.sx_mask.get()) & (StatxFlags::BASIC_STATS | StatxFlags::BTIME);
        let stat = match arg.handle().and_then(|fh| self.handles.file(fh).ok()) {
            Some(file) => stat::statx(&file.fd, sync, mask)?,
            None => stat::statx(&self.inode(call.nodeid)?.fd, sync, mask)?,
        };
        let (attr_valid, attr_valid_nsec) = seconds(attribute_validity(&stat, self.validity(&stat)));
        Ok(StatxOut {
            attr_valid: attr_valid.into(),
            attr_valid_nsec: attr_valid_nsec.into(),
            stat: self.statx_out(&stat),
            ..StatxOut::default()
        })
    }
}

impl Passthrough {
    /// Returns whether STATX is served. A guest that caches attributes sends STATX only for the birth time, which no
    /// other reply has. And STATX has no field for the DAX flag: Linux would consider it cleared.
    fn answers_statx(&self) -> bool {
        let is_asked_anyway = self.config.cache.validity().is_zero();
        !self.has(InitFlags::HAS_INODE_DAX) && (self.config.birth_times || is_asked_anyway)
    }

    fn statx_out(&self, stat: &Statx) -> statx::Statx {
        let known = (StatxFlags::BASIC_STATS | StatxFlags::BTIME).bits();
        statx::Statx {
            mask: (stat.stx_mask & known).into(),
            blksize: stat.stx_blksize.into(),
            attributes: stat.stx_attributes.bits().into(),
            nlink: stat.stx_nlink.into(),
            uid: self.guest_uid(stat.stx_uid).0.into(),
            gid: self.guest_gid(stat.stx_gid).0.into(),
            mode: stat.stx_mode.into(),
            ino: stat.stx_ino.into(),
            size: stat.stx_size.into(),
            blocks: stat.stx_blocks.into(),
            attributes_mask: stat.stx_attributes_mask.bits().into(),
            atime: time(&stat.stx_atime),
            btime: time(&stat.stx_btime),
            ctime: time(&stat.stx_ctime),
            mtime: time(&stat.stx_mtime),
            rdev_major: stat.stx_rdev_major.into(),
            rdev_minor: stat.stx_rdev_minor.into(),
            dev_major: stat.stx_dev_major.into(),
            dev_minor: stat.stx_dev_minor.into(),
            ..statx::Statx::default()
        }
    }
}

fn time(time: &StatxTimestamp) -> SxTime {
    SxTime { tv_sec: time.tv_sec.into(), tv_nsec: time.tv_nsec.into(), reserved: 0.into() }
}
