//! Operations that a directory of the host does not support: each returns ENOSYS.

use transom_wire::operation::{Bmap, NotifyReply, Poll};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

/// The host's block numbers mean nothing to a guest.
impl Serve<Bmap> for Passthrough {}

/// A regular file is always ready, which a guest knows without asking.
impl Serve<Poll> for Passthrough {}

impl Serve<NotifyReply> for Passthrough {
    /// Ignored: it replies to a notification that is never sent, and has no reply itself.
    fn serve(&self, _: Call<'_, NotifyReply>) -> Result<(), Errno> {
        Ok(())
    }
}
