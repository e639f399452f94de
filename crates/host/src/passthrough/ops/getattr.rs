//! GETATTR.

use rustix::fs::{AtFlags, StatxFlags};
use transom_wire::{attr::AttrOut, operation::Getattr};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
    sysfd::stat,
};

impl Serve<Getattr> for Passthrough {
    /// Uses the open file if there is one, whatever happened to its name.
    fn serve(&self, call: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        let sync = AtFlags::empty();
        match call.arg.handle().and_then(|fh| self.handles.file(fh).ok()) {
            Some(file) => Ok(self.attr_out(&file.fd, &stat::statx(&file.fd, sync, StatxFlags::BASIC_STATS)?)),
            None => {
                let fd = self.inodes.get(call.nodeid)?.fd;
                Ok(self.attr_out(&*fd, &stat::statx(&*fd, sync, StatxFlags::BASIC_STATS)?))
            }
        }
    }
}
