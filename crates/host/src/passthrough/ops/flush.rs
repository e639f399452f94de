//! FLUSH.

use rustix::io::fcntl_dupfd_cloexec;
use transom_wire::{Handle, ids::LockOwner};

use crate::{
    Errno,
    operation::Flush,
    passthrough::{Passthrough, close::close},
    server::{Call, Serve},
};

impl Serve<Flush> for Passthrough {
    /// Closes a descriptor of the file as the guest did, since file systems that write late report their errors then.
    /// Like every close by a process, this ends all of its POSIX locks on the file.
    fn serve(&self, call: Call<'_, Flush>) -> Result<(), Errno> {
        let arg = &call.arg;
        let file = self.handles.file(Handle::from(arg.fh))?;
        if let Some(locks) = &self.locks {
            locks.release_owner(file.nodeid, LockOwner(arg.lock_owner));
        }
        let copy = self.inodes.with_room(|| fcntl_dupfd_cloexec(&file.fd, 0))?;
        close(copy)
    }
}
