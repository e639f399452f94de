//! POLL.

use transom_wire::{Handle, NodeId, operation::Poll, ops::poll::PollIn};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

/// POLLIN, POLLOUT, POLLRDNORM and POLLWRNORM: the events for which a regular file is always ready.
const READY: u32 = 0x145;

impl<P: Platform> Session<P> {
    /// Returns those of `events`, as in poll(2), for which the open file `fh` is ready; reading and writing if the
    /// server does not know the operation.
    ///
    /// There are no later notifications: virtio-fs has no queue for them.
    pub fn poll(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, events: u32) -> Result<u32, Errno> {
        let arg = PollIn { fh: fh.into(), kh: 0.into(), flags: 0.into(), events: events.into() };
        let known = self.ask_if_known(caller, &mut Plain::<Poll>::new(node, caller, &arg))?;
        Ok(known.map_or(READY & events, |out| out.revents.get()))
    }
}
