//! INIT: goes to the daemon and back on the thread that mounts, before any worker runs.

use std::time::Duration;

use rustix::io::Errno;
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::init::InitFlags,
};
use zerocopy::FromBytes as _;

use super::{
    MountEnd,
    connection::Connection,
    daemon_client::{DaemonClient, Deadline},
    init::{self, Wanted},
    reconnect,
};

/// Why kernel and daemon did not agree on a session.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The mount has ended before INIT was answered.
    #[error(transparent)]
    End(#[from] MountEnd),
    /// The daemon replied to INIT with an error.
    #[error("the daemon refused INIT: {0}")]
    Refused(Errno),
    /// The daemon failed a request that a mount with `reconnect` needs, for a reason that may pass.
    #[error("the daemon cannot say what it shares: {0}")]
    NotReady(Errno),
    /// The kernel's first request is not a valid INIT.
    #[error("the kernel sent an invalid INIT")]
    InvalidRequest,
    /// The daemon's reply to INIT is too short, or not a reply.
    #[error("the daemon sent an invalid reply to INIT")]
    InvalidReply,
    /// The daemon did not reply in time.
    #[error("the daemon did not reply to INIT within {0} s")]
    TimedOut(u64),
}

/// Sends the kernel's INIT to the daemon, and the daemon's reply to the kernel. Blocks for at most `timeout`.
///
/// # Errors
/// As [`InitError`] says. The kernel then gets no reply.
pub(super) fn negotiate(client: &mut DaemonClient<'_>, timeout: Duration) -> Result<(), InitError> {
    let deadline = Deadline::after(timeout);
    let slot = client.take_slot().ok_or(InitError::InvalidRequest)?;
    let mut request = client.read_request(slot, &deadline)?;
    let (header, body) = request.split_at_mut_checked(size_of::<InHeader>()).ok_or(InitError::InvalidRequest)?;
    let header = InHeader::read_from_bytes(header).map_err(|_| InitError::InvalidRequest)?;
    if header.opcode.get() != Opcode::Init as u32 {
        return Err(InitError::InvalidRequest);
    }
    let passthrough = &client.connection().passthrough;
    let offered = init::offered(body);
    let coherence = client.connection().coherence.as_ref();
    let wanted = Wanted { passthrough: passthrough.is_possible(offered), own_changes: coherence.is_some() };
    let own_flags = init::own_flags(offered);
    if let Some(coherence) = coherence.filter(|_| offered.contains(InitFlags::HAS_EXPIRE_ONLY)) {
        coherence.set_expires_names();
    }
    let offered = init::filter_request(body, wanted);
    client.send(slot, &request);

    let reply = client.wait_reply(&deadline)?.1?;
    let page_len = rustix::param::page_size();
    let agreed = init::filter_reply(&reply, offered, wanted, page_len).ok_or(InitError::InvalidReply)?;
    let Connection { passthrough, coherence, .. } = &**client.connection();
    if wanted.passthrough {
        passthrough.begin(agreed.passthrough);
    }
    if let Some(coherence) = coherence.as_ref().filter(|_| agreed.own_changes) {
        coherence.begin_trailers(init::accepted(&init::padded(&agreed.reply)));
    }
    reconnect::record_agreement(client, &agreed.reply)?;
    let reply = init::with_flags(&agreed.reply, own_flags);
    let len = (size_of::<OutHeader>() + reply.len()) as u32;
    let header = OutHeader { len: len.into(), error: 0.into(), unique: header.unique };
    client.device().write(&header, &reply).map_err(|errno| InitError::End(MountEnd::Kernel(errno)))
}
