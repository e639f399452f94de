//! POLL.

use transom_wire::{
    Handle, NodeId, Opcode,
    ops::poll::{PollIn, PollOut},
};

use crate::{
    Errno, Platform,
    session::{Caller, Head, PLAIN, Session},
};

/// POLLIN, POLLOUT, POLLRDNORM and POLLWRNORM: what a regular file always is.
const READY: u32 = 0x145;

impl<P: Platform> Session<P> {
    /// Which of `events`, as in poll(2), the open file `fh` is ready for; reading and writing where the server does not
    /// know.
    ///
    /// Nothing is notified later: virtio-fs has no queue for it.
    pub fn poll(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, events: u32) -> Result<u32, Errno> {
        let arg = PollIn { fh: fh.into(), kh: 0.into(), flags: 0.into(), events: events.into() };
        let mut head = Head::<PLAIN>::new(Opcode::Poll, node, caller);
        head.arg(&arg);
        let known = self.if_known(Opcode::Poll, || self.ask::<PollOut, _>(caller, &mut head))?;
        Ok(known.map_or(READY & events, |out| out.revents.get()))
    }
}
