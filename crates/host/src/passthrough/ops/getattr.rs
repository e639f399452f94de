//! GETATTR.

use rustix::fs::{AtFlags, StatxFlags};
use transom_wire::{Handle, NodeId, attr::AttrOut};

use crate::{Errno, passthrough::Passthrough, sysfd::stat};

impl Passthrough {
    /// An open file answers for itself, whatever became of its name.
    pub(in crate::passthrough) fn do_getattr(&self, nodeid: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno> {
        let sync = AtFlags::empty();
        let stat = match fh.and_then(|fh| self.handles.file(fh).ok()) {
            Some(file) => stat::statx(&file.fd, sync, StatxFlags::BASIC_STATS)?,
            None => stat::statx(&*self.inodes.get(nodeid)?.fd, sync, StatxFlags::BASIC_STATS)?,
        };
        Ok(self.attr_out(&stat))
    }
}
