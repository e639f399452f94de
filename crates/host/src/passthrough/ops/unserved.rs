//! Operations that a directory of the host does not serve: each answers ENOSYS.

use transom_wire::operation::{Bmap, NotifyReply, Poll};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

/// Block numbers of the host mean nothing to a guest.
impl Serve<Bmap> for Passthrough {}

/// A regular file is always ready, which a guest knows without asking.
impl Serve<Poll> for Passthrough {}

impl Serve<NotifyReply> for Passthrough {
    /// Answers a notification that is never sent; there is no reply, so it is ignored.
    fn serve(&self, _: Call<'_, NotifyReply>) -> Result<(), Errno> {
        Ok(())
    }
}
