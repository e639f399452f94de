//! SETATTR.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use transom_wire::{
    Handle, NodeId,
    attr::AttrOut,
    operation::Setattr,
    ops::setattr::{SetattrIn, SetattrValid},
};

use crate::{
    Errno,
    passthrough::{Passthrough, creator::permissions, inodes::Inode, set_id::without_set_id},
    server::{Call, Serve},
    sysfd::{path, stat},
};

impl Serve<Setattr> for Passthrough {
    fn serve(&self, call: Call<'_, Setattr>) -> Result<AttrOut, Errno> {
        let (nodeid, arg) = (call.nodeid, &call.arg);
        let valid = arg.valid().ok_or(Errno::INVAL)?;
        self.check_writable()?;
        let is_of_path = valid.contains(SetattrValid::SIZE) && !valid.contains(SetattrValid::FH);
        let inode = if is_of_path { self.inodes.get(nodeid)? } else { self.inode(nodeid)? };
        if valid.contains(SetattrValid::MODE) {
            self.proc_fds.chmod(&inode.fd, permissions(arg.mode.get()))?;
        }
        if valid.intersects(SetattrValid::UID | SetattrValid::GID) {
            self.change_owner(&inode, valid, arg)?;
        }
        if valid.contains(SetattrValid::SIZE) {
            self.change_size(nodeid, valid, arg)?;
        } else if valid.contains(SetattrValid::KILL_SUIDGID) {
            self.clear_set_id(&inode)?;
        }
        if valid.intersects(SetattrValid::ATIME | SetattrValid::MTIME) {
            path::set_times(&inode.fd, &times(valid, arg))?;
        }
        Ok(self.attr_out(&*inode.fd, &stat::statx(&inode.fd, AtFlags::empty(), StatxFlags::BASIC_STATS)?))
    }
}

impl Passthrough {
    fn change_owner(&self, inode: &Inode, valid: SetattrValid, arg: &SetattrIn) -> Result<(), Errno> {
        let uid = valid.contains(SetattrValid::UID).then(|| self.host_uid(arg.uid.get())).transpose()?;
        let gid = valid.contains(SetattrValid::GID).then(|| self.host_gid(arg.gid.get())).transpose()?;
        // As an argument of the system call, this value would mean "leave unchanged".
        if uid.is_some_and(|uid| uid.0 == u32::MAX) || gid.is_some_and(|gid| gid.0 == u32::MAX) {
            return Err(Errno::INVAL);
        }
        if inode.file_type == FileType::RegularFile {
            self.drop_capabilities(&inode.fd)?;
        }
        path::chown(&inode.fd, uid.map(|uid| Uid::from_raw(uid.0)), gid.map(|gid| Gid::from_raw(gid.0)))
    }

    /// Changes the size, through the open file if the request names one that is open for writing: its permission
    /// counts, not the current one.
    fn change_size(&self, nodeid: NodeId, valid: SetattrValid, arg: &SetattrIn) -> Result<(), Errno> {
        let kills_set_id = valid.contains(SetattrValid::KILL_SUIDGID);
        let file = match valid.contains(SetattrValid::FH) {
            true => Some(self.handles.file(Handle::from(arg.fh))?),
            false => None,
        };
        let opened = match file {
            None => Some(self.inodes.open(nodeid, OFlags::WRONLY | OFlags::NONBLOCK)?),
            Some(_) => None,
        };
        let fd = match (&file, &opened) {
            (Some(file), _) => file.fd.as_fd(),
            (None, Some(fd)) => fd.as_fd(),
            (None, None) => return Err(Errno::BADF),
        };
        self.drop_capabilities(fd)?;
        let _guard = if kills_set_id { self.kill_set_id(fd)? } else { None };
        rustix::fs::ftruncate(fd, arg.size.get())
    }

    fn clear_set_id(&self, inode: &Inode) -> Result<(), Errno> {
        let stat = stat::statx(&inode.fd, AtFlags::empty(), StatxFlags::MODE | StatxFlags::TYPE)?;
        let mode = Mode::from_raw_mode(stat.stx_mode.into());
        let cleared = without_set_id(mode);
        if cleared == mode { Ok(()) } else { self.proc_fds.chmod(&inode.fd, cleared) }
    }
}

fn times(valid: SetattrValid, arg: &SetattrIn) -> Timestamps {
    let time = |is_set, is_now, sec: u64, nsec: u32| match (valid.contains(is_set), valid.contains(is_now)) {
        (false, _) => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        (true, true) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        (true, false) => Timespec { tv_sec: sec.cast_signed(), tv_nsec: nsec.into() },
    };
    Timestamps {
        last_access: time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, arg.atime.get(), arg.atimensec.get()),
        last_modification: time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, arg.mtime.get(), arg.mtimensec.get()),
    }
}
