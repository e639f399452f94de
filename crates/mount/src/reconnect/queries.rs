//! Queries to a daemon that no worker uses yet. As many are in flight as there are slots.

use std::{collections::HashMap, time::Duration};

use rustix::io::Errno;
use transom_wire::{Opcode, header::InHeader};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::inodes::DaemonNode;
use crate::{
    InitError,
    daemon_client::{DaemonClient, Deadline},
};

/// How long the daemon may take for one reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of all queries. The kernel has no requests in flight yet.
pub(super) const UNIQUE: u64 = 1 << 63;

/// A request of the mount's own.
pub(super) struct Query {
    pub(super) opcode: Opcode,
    pub(super) node: DaemonNode,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) args: Vec<u8>,
}

/// A set of queries in which each reply may lead to more queries.
pub(super) trait QuerySet {
    /// What a query was for.
    type Job;

    /// Returns the next query, or `None` if the set is empty until another reply comes.
    fn next(&mut self) -> Option<(Self::Job, Query)>;

    /// Handles the body of a reply, or its error.
    fn record_reply(&mut self, job: Self::Job, reply: Result<Vec<u8>, Errno>);
}

/// Sends the queries of `set` until there are no more. Blocks, with a bound for each reply.
///
/// # Errors
/// The connection has ended, or [`InitError::NotReady`]: the daemon failed a query for a reason that may pass, so the
/// reply says nothing about the file.
pub(super) fn run_queries<Q: QuerySet>(client: &mut DaemonClient<'_>, set: &mut Q) -> Result<(), InitError> {
    let mut jobs = HashMap::new();
    loop {
        while client.has_free_slot()
            && let Some((job, query)) = set.next()
            && let Some(slot) = client.take_slot()
        {
            client.send(slot, &query.message());
            jobs.insert(slot, job);
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let (slot, reply) = wait_reply(client)?;
        if let Err(errno) = reply
            && is_transient(errno)
        {
            return Err(InitError::NotReady(errno));
        }
        if let Some(job) = jobs.remove(&slot) {
            set.record_reply(job, reply);
        }
    }
}

/// Blocks until a reply comes. Returns its slot, and its body or error; EIO for an invalid reply.
///
/// # Errors
/// The connection has ended, or no reply came in time.
pub(super) fn wait_reply(client: &mut DaemonClient<'_>) -> Result<(u16, Result<Vec<u8>, Errno>), InitError> {
    let (slot, reply) = client.wait_reply(&Deadline::after(REPLY_TIMEOUT))?;
    let reply = reply.map_err(|error| match error {
        InitError::Refused(errno) => errno,
        _ => Errno::IO,
    });
    Ok((slot, reply))
}

impl Query {
    /// Creates a query as root.
    pub(super) fn new(opcode: Opcode, node: DaemonNode, args: Vec<u8>) -> Self {
        Self { opcode, node, uid: 0, gid: 0, args }
    }

    fn message(&self) -> Vec<u8> {
        let header = InHeader {
            len: ((size_of::<InHeader>() + self.args.len()) as u32).into(),
            opcode: (self.opcode as u32).into(),
            unique: UNIQUE.into(),
            nodeid: self.node.0.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            ..InHeader::new_zeroed()
        };
        [header.as_bytes(), &self.args].concat()
    }
}

/// Returns whether the error is about the daemon's state rather than the file.
fn is_transient(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS | Errno::MFILE | Errno::NFILE | Errno::TIMEDOUT
    )
}
