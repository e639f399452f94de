//! READ and WRITE that are started by one call and finished by another, for the caches; [`Pending`](super::Pending) is
//! for every operation.

use alloc::{sync::Arc, vec::Vec};
use core::{marker::PhantomData, ops::Range};

use transom_wire::{Unique, operation::Operation};
use zerocopy::FromBytes;

use super::{
    Caller, Session,
    head::{Head, complete_header},
    reply::{self, HEADER_LEN, Structure, WithBytes},
};
use crate::{
    Errno, Platform,
    channel::{OwnedMessage, OwnedReply, Ticket},
    dma::DmaBuffer,
    sync::rank,
};

/// A request for `O` in progress.
#[must_use = "a request that is not finished keeps its place in the queue"]
pub(crate) struct Started<O> {
    pub(crate) ticket: Ticket,
    unique: Unique,
    /// The most bytes that the reply may have.
    room: usize,
    operation: PhantomData<O>,
}

impl<P: Platform> Session<P> {
    /// Sends `head` with the bytes in `data` and room for the reply's bytes in `reply_data`, and returns at once.
    ///
    /// Blocks only while the queue is full.
    pub(crate) fn start<O: Operation, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
        data: Option<(Arc<DmaBuffer>, Range<usize>)>,
        reply_data: Option<(Arc<DmaBuffer>, Range<usize>)>,
    ) -> Result<Started<O>, Errno> {
        rank::may_wait::<P>();
        let unique = self.next_unique();
        complete_header(head.as_mut_bytes(), len_of(&data), unique);
        let reply_head_len = HEADER_LEN + O::ROW.reply_len_min();
        let room = reply_head_len + len_of(&reply_data);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(head.as_mut_bytes().len()).map_err(|_| Errno::NOMEM)?;
        bytes.extend_from_slice(head.as_mut_bytes());
        let message = OwnedMessage { head: bytes, data, reply_head_len, reply_data };
        let ticket = self.channel.start(self.queue_of(caller), message)?;
        Ok(Started { ticket, unique, room, operation: PhantomData })
    }

    /// Blocks until a request is over whose reply is one structure, and returns that reply.
    pub(crate) fn finish<O>(&self, started: Started<O>) -> Result<O::Reply, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        let (head, body_len) = self.wait_for(started)?;
        let body = head.get(HEADER_LEN..).and_then(|body| body.get(..body_len)).unwrap_or_default();
        O::Reply::read_from_bytes(body).map_err(|_| self.impossible_eio())
    }

    /// Blocks until a request is over whose reply is bytes, and returns their number.
    pub(crate) fn finish_fetch<O>(&self, started: Started<O>) -> Result<usize, Errno>
    where
        O: Operation<Reply: WithBytes<Structure = ()>>,
    {
        self.wait_for(started).map(|(_, body_len)| body_len)
    }

    /// Returns the reply's header and fixed part, and the number of bytes after the header.
    fn wait_for<O>(&self, started: Started<O>) -> Result<(Vec<u8>, usize), Errno> {
        rank::may_wait::<P>();
        let OwnedReply { head, written } = self.channel.finish(started.ticket)?;
        let body_len = self.judge(reply::check(&head, written, started.room, started.unique))?;
        Ok((head, body_len))
    }
}

fn len_of(data: &Option<(Arc<DmaBuffer>, Range<usize>)>) -> usize {
    data.as_ref().map_or(0, |(_, range)| range.len())
}
