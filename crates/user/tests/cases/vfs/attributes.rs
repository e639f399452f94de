//! Attributes: what stat(2) tells, and what changes them.

use transom_conformance::client::{self, Access, Errno, Handle, SetTime, Space, Time};
use transom_wire::{
    NodeId,
    attr::Attr,
    device_number,
    ops::setattr::{SetattrIn, SetattrValid},
};
use zerocopy::FromZeros as _;

use super::{
    errno::{Result, from_guest},
    process::Process,
    rights::{self, WRITE},
};

/// STATX_BASIC_STATS and STATX_BTIME.
const STATX_MASK: u32 = 0xfff;
const STATX_BTIME: u32 = 0x800;

impl Process<'_> {
    /// The attributes as a program sees them; the birth time where the server knows STATX.
    pub(crate) fn told(&self, node: NodeId, attr: &Attr) -> Result<client::Attr> {
        let statx = self.vfs.session.statx(&self.caller(), node, None, 0, STATX_MASK);
        let btime = match statx {
            Ok(out) if out.stat.mask.get() & STATX_BTIME != 0 => {
                Some(Time { sec: out.stat.btime.tv_sec.get(), nsec: out.stat.btime.tv_nsec.get() })
            }
            Ok(_) | Err(transom_guest::Errno::NOSYS) => None,
            Err(errno) => return Err(from_guest(errno)),
        };
        Ok(client::Attr { btime, ..told(attr) })
    }

    pub(crate) fn change_mode(&self, node: NodeId, attr: &Attr, mode: u32) -> Result<()> {
        if !rights::is_owner(&self.who, attr) {
            return Err(Errno::PERM);
        }
        let mode = rights::chmod_mode(&self.who, attr, mode);
        self.set_attributes(node, SetattrValid::MODE, SetattrIn { mode: mode.into(), ..SetattrIn::new_zeroed() })
    }

    pub(crate) fn change_owner(&self, node: NodeId, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let is_own = self.who.uid == attr.uid.get();
        let keeps_owner = uid.is_none_or(|uid| uid == attr.uid.get());
        let is_own_group = gid.is_none_or(|gid| gid == attr.gid.get() || rights::is_in_group(&self.who, gid));
        let is_nothing = uid.is_none() && gid.is_none();
        if !(rights::is_privileged(&self.who) || is_nothing || is_own && keeps_owner && is_own_group) {
            return Err(Errno::PERM);
        }
        let mut valid = SetattrValid::empty();
        valid.set(SetattrValid::UID, uid.is_some());
        valid.set(SetattrValid::GID, gid.is_some());
        if !rights::is_directory(attr) && attr.mode.get() & (rights::SET_UID | rights::SET_GID) != 0 {
            valid |= SetattrValid::KILL_SUIDGID;
        }
        let (uid, gid) = (uid.unwrap_or(0).into(), gid.unwrap_or(0).into());
        self.set_attributes(node, valid, SetattrIn { uid, gid, ..SetattrIn::new_zeroed() })
    }

    pub(crate) fn change_times(&self, node: NodeId, attr: &Attr, atime: SetTime, mtime: SetTime) -> Result<()> {
        let (mut valid, mut change) = (SetattrValid::empty(), SetattrIn::new_zeroed());
        match (atime, mtime) {
            (SetTime::Omit, SetTime::Omit) => return Ok(()),
            (SetTime::Now, SetTime::Now) if !rights::is_owner(&self.who, attr) => self.check(attr, WRITE)?,
            _ if !rights::is_owner(&self.who, attr) => return Err(Errno::PERM),
            _ => {}
        }
        match atime {
            SetTime::Omit => {}
            SetTime::Now => valid |= SetattrValid::ATIME | SetattrValid::ATIME_NOW,
            SetTime::At(time) => {
                valid |= SetattrValid::ATIME;
                (change.atime, change.atimensec) = ((time.sec as u64).into(), time.nsec.into());
            }
        }
        match mtime {
            SetTime::Omit => {}
            SetTime::Now => valid |= SetattrValid::MTIME | SetattrValid::MTIME_NOW,
            SetTime::At(time) => {
                valid |= SetattrValid::MTIME;
                (change.mtime, change.mtimensec) = ((time.sec as u64).into(), time.nsec.into());
            }
        }
        self.set_attributes(node, valid, change)
    }

    pub(crate) fn truncate_path(&self, path: &[u8], len: u64) -> Result<()> {
        if len > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let found = self.find(path, true)?;
        match found.attr.mode.get() & 0o170_000 {
            0o100_000 => {}
            0o040_000 => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.check(&found.attr, WRITE)?;
        let mut valid = SetattrValid::SIZE;
        if self.drop_set_id(found.node.id, &found.attr)? {
            valid |= SetattrValid::KILL_SUIDGID;
        }
        self.set_attributes(found.node.id, valid, SetattrIn { size: len.into(), ..SetattrIn::new_zeroed() })
    }

    pub(crate) fn may(&self, path: &[u8], access: Access) -> Result<()> {
        let found = self.find(path, true)?;
        // R_OK, W_OK and X_OK have the values of the mode's bits.
        self.check(&found.attr, access.bits())
    }

    pub(crate) fn space(&self, path: &[u8]) -> Result<Space> {
        let found = self.find(path, true)?;
        let out = self.vfs.session.statfs(&self.caller(), found.node.id).map_err(from_guest)?;
        Ok(Space {
            block_size: out.bsize.get().into(),
            blocks: out.blocks.get(),
            blocks_free: out.bfree.get(),
            name_len_max: out.namelen.get().into(),
        })
    }

    /// An open file's attributes.
    pub(crate) fn attr_of(&self, handle: Handle) -> Result<(NodeId, Attr)> {
        let file = self.file(handle)?;
        let attr = file.attr(self)?;
        Ok((file.node.id, attr))
    }
}

/// Attributes as the cases have them.
pub(crate) fn told(attr: &Attr) -> client::Attr {
    let time = |sec: u64, nsec| Time { sec: sec as i64, nsec };
    client::Attr {
        ino: attr.ino.get(),
        mode: attr.mode.get(),
        nlink: attr.nlink.get(),
        uid: attr.uid.get(),
        gid: attr.gid.get(),
        rdev: device_number::decode(attr.rdev.get()),
        size: attr.size.get(),
        blocks: attr.blocks.get(),
        blksize: attr.blksize.get(),
        atime: time(attr.atime.get(), attr.atimensec.get()),
        mtime: time(attr.mtime.get(), attr.mtimensec.get()),
        ctime: time(attr.ctime.get(), attr.ctimensec.get()),
        btime: None,
    }
}
