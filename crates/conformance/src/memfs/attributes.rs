//! What SETATTR does to an inode.

use transom_wire::ops::setattr::{SetattrIn, SetattrValid};

use super::tree::{Inode, PERMISSIONS, TYPE_MASK, Time};

impl Inode {
    /// Sets what `valid` names; the time of the change is `now`.
    pub(super) fn set_attributes(&mut self, valid: SetattrValid, arg: &SetattrIn, now: Time) {
        if valid.contains(SetattrValid::MODE) {
            self.mode = self.mode & TYPE_MASK | arg.mode.get() & PERMISSIONS;
        }
        if valid.contains(SetattrValid::UID) {
            self.uid = arg.uid.get();
        }
        if valid.contains(SetattrValid::GID) {
            self.gid = arg.gid.get();
        }
        if valid.contains(SetattrValid::KILL_SUIDGID) {
            self.kill_suidgid();
        }
        let chosen = |set, set_now, given| match (valid.contains(set_now), valid.contains(set)) {
            (true, _) => Some(now),
            (false, true) => Some(given),
            (false, false) => None,
        };
        let atime = Time(arg.atime.get(), arg.atimensec.get());
        let mtime = Time(arg.mtime.get(), arg.mtimensec.get());
        self.atime = chosen(SetattrValid::ATIME, SetattrValid::ATIME_NOW, atime).unwrap_or(self.atime);
        self.mtime = chosen(SetattrValid::MTIME, SetattrValid::MTIME_NOW, mtime).unwrap_or(self.mtime);
        self.ctime = now;
    }
}
