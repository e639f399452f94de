//! GETLK, SETLK and SETLKW.
//!
//! If INIT negotiated neither POSIX_LOCKS nor FLOCK_LOCKS, the client keeps its locks itself and none of these is sent.

use transom_wire::{
    NodeId,
    linux::F_UNLCK,
    operation::{Getlk, Setlk, Setlkw},
    ops::lk::{FileLock, LkIn, LkOut},
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Returns the lock that conflicts with the one in `arg`, or a lock of type F_UNLCK (2).
    pub fn getlk(&self, caller: &Caller<'_>, node: NodeId, arg: &LkIn) -> Result<FileLock, Errno> {
        // A server may pass it to F_OFD_GETLK, which requires 0.
        let lk = FileLock { pid: 0.into(), ..arg.lk };
        let arg = LkIn { lk, ..*arg };
        let LkOut { lk } = self.ask(caller, &mut Plain::<Getlk>::new(node, caller, &arg))?;
        self.possible_lock(lk)
    }

    /// Validates the lock in a reply.
    pub(crate) fn possible_lock(&self, lk: FileLock) -> Result<FileLock, Errno> {
        let is_range = lk.start <= lk.end && lk.end.get() <= i64::MAX as u64;
        match lk.type_.get() {
            F_UNLCK => Ok(lk),
            0 | 1 if is_range => Ok(lk),
            _ => Err(self.impossible_eio()),
        }
    }

    /// Sets, changes or releases a lock. Errors: EAGAIN if another lock conflicts.
    pub fn setlk(&self, caller: &Caller<'_>, node: NodeId, arg: &LkIn) -> Result<(), Errno> {
        self.ask(caller, &mut Plain::<Setlk>::new(node, caller, arg))
    }

    /// Sets a lock, and waits while another one conflicts. Errors: EINTR after [`Caller::interrupt`] was raised,
    /// EDEADLK.
    pub fn setlkw(&self, caller: &Caller<'_>, node: NodeId, arg: &LkIn) -> Result<(), Errno> {
        self.ask(caller, &mut Plain::<Setlkw>::new(node, caller, arg))
    }
}
