//! Changes that others make in the share, as the server tells them over the notification queue.

use alloc::{sync::Arc, vec, vec::Vec};

use transom_wire::notification::Notification;

use crate::{Errno, channel::Channel};

/// The stream of changes. Two of one device share its notifications: each goes to one of them.
///
/// It is bounded: what nobody takes waits with the server, which says [`Notification::Lost`] if that is too much.
pub struct Changes {
    channel: Arc<dyn Channel>,
    buffer: Vec<u8>,
}

impl Changes {
    pub(super) fn new(channel: &Arc<dyn Channel>) -> Option<Self> {
        let len = channel.notification_len_max()?;
        Some(Self { channel: Arc::clone(channel), buffer: vec![0; len] })
    }

    /// Waits for the next notification, or until `deadline_ns` of the platform's clock, and returns `None` then.
    ///
    /// A change names its directory by the nodeid that this session has of it; it is one that the guest has looked up.
    /// Changes that the guest has made itself are not told. One that cannot be read counts as [`Notification::Lost`],
    /// so that nothing goes unnoticed.
    ///
    /// # Errors
    /// ENOTCONN if the server is gone, EIO if it broke the protocol.
    pub fn next(&mut self, deadline_ns: Option<u64>) -> Result<Option<Notification<'_>>, Errno> {
        let len = loop {
            match self.channel.notification(&mut self.buffer, deadline_ns).map_err(Errno::from)? {
                None => return Ok(None),
                // Codes of FUSE: they are about caches, which this session does not have.
                Some(len) if matches!(Notification::parse(&self.buffer[..len]), Ok(None)) => {}
                Some(len) => break len,
            }
        };
        Ok(Some(Notification::parse(&self.buffer[..len]).ok().flatten().unwrap_or(Notification::Lost)))
    }
}
