//! GETATTR.

use rustix::fs::{AtFlags, StatxFlags};
use transom_wire::{Handle, NodeId, attr::AttrOut};

use crate::{Errno, passthrough::Passthrough, sysfd::stat};

impl Passthrough {
    /// An open file answers for itself, whatever became of its name.
    pub(in crate::passthrough) fn do_getattr(&self, nodeid: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno> {
        let sync = AtFlags::empty();
        match fh.and_then(|fh| self.handles.file(fh).ok()) {
            Some(file) => Ok(self.attr_out(&file.fd, &stat::statx(&file.fd, sync, StatxFlags::BASIC_STATS)?)),
            None => {
                let fd = self.inodes.get(nodeid)?.fd;
                Ok(self.attr_out(&*fd, &stat::statx(&*fd, sync, StatxFlags::BASIC_STATS)?))
            }
        }
    }
}
