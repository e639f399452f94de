//! The caller of a request, and the one path that every request takes.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use transom_wire::{Unique, ops::init::InitFlags};
use zerocopy::{FromBytes, IntoBytes, KnownLayout, Unaligned};

use super::{
    Interrupt, Session, counters,
    head::{GroupExtension, Head, complete_header},
    reply::{self, Failure, HEADER_LEN, Room},
};
use crate::{
    Errno, Platform,
    channel::{ChannelError, Message, OwnedMessage, OwnedReply, Sink, Source, Ticket},
    dma::DmaError,
    sync::rank,
};

/// On whose behalf a request is sent.
#[derive(Clone, Copy, Default)]
pub struct Caller<'a> {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process id, 0 if there are no processes.
    pub pid: u32,
    /// A group other than `gid` that a new file's directory demands; sent if CREATE_SUPP_GROUP is on.
    pub group: Option<u32>,
    /// Permission bits that are cleared in the mode of new files.
    pub umask: u32,
    /// Request queue to use, modulo the number of queues.
    pub queue: u16,
    /// Ends the request early when raised.
    pub interrupt: Option<&'a Interrupt>,
}

impl<P: Platform> Session<P> {
    /// Sends a request whose reply is one structure.
    pub(crate) fn ask<T, const N: usize>(&self, caller: &Caller<'_>, head: &mut Head<N>) -> Result<T, Errno>
    where
        T: FromBytes + IntoBytes + KnownLayout + Unaligned,
    {
        self.ask_with(caller, head, Source::Empty)
    }

    /// Sends a request with data, whose reply is one structure.
    pub(crate) fn ask_with<T, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<N>,
        data: Source<'_>,
    ) -> Result<T, Errno>
    where
        T: FromBytes + IntoBytes + KnownLayout + Unaligned,
    {
        let mut room = Room::<T>::new();
        let body_len = self.transact(caller, head.as_mut_bytes(), data, room.as_mut_bytes(), Sink::Empty)?;
        if body_len == size_of::<T>() { Ok(room.body) } else { Err(self.impossible()) }
    }

    /// Sends a request whose reply is only a header.
    pub(crate) fn tell<const N: usize>(&self, caller: &Caller<'_>, head: &mut Head<N>) -> Result<(), Errno> {
        self.ask::<[u8; 0], N>(caller, head).map(|[]| ())
    }

    /// Sends a request whose reply is bytes; returns their number, at most the room.
    pub(crate) fn fetch<const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<N>,
        sink: Sink<'_>,
    ) -> Result<usize, Errno> {
        self.transact(caller, head.as_mut_bytes(), Source::Empty, &mut [0; HEADER_LEN], sink)
    }

    /// Sends `head`, a header with its arguments, and `data`; blocks until the reply has come.
    ///
    /// Returns the length of the reply after its header. The number and the length of the request are filled in here.
    pub(crate) fn transact(
        &self,
        caller: &Caller<'_>,
        head: &mut [u8],
        data: Source<'_>,
        reply_head: &mut [u8],
        reply_data: Sink<'_>,
    ) -> Result<usize, Errno> {
        rank::may_wait::<P>();
        let unique = self.next_unique();
        let room = reply_head.len() + reply_data.len_bytes();
        complete_header(head, data.len_bytes(), unique);
        let _in_flight = match caller.interrupt {
            Some(interrupt) => Some(interrupt.enter(unique)?),
            None => None,
        };
        let message = Message { head, data, reply_head: &mut *reply_head, reply_data };
        let written = self.channel.call(self.queue_of(caller), message)?;
        self.judge(reply::check(reply_head, written, room, unique))
    }

    /// Sends `head` with the buffers of `message`, whose own head is empty, and returns at once.
    pub(crate) fn start<const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<N>,
        mut message: OwnedMessage,
    ) -> Result<(Ticket, Unique), Errno> {
        rank::may_wait::<P>();
        let unique = self.next_unique();
        let data_len = message.data.as_ref().map_or(0, |(_, range)| range.len());
        complete_header(head.as_mut_bytes(), data_len, unique);
        message.head.extend_from_slice(head.as_mut_bytes());
        let ticket = self.channel.start(self.queue_of(caller), message)?;
        Ok((ticket, unique))
    }

    /// Blocks until a started request is over. Returns its reply's header and fixed part, and the number of bytes after
    /// the header.
    pub(crate) fn finish(&self, ticket: Ticket, unique: Unique, room: usize) -> Result<(Vec<u8>, usize), Errno> {
        rank::may_wait::<P>();
        let OwnedReply { head, written } = self.channel.finish(ticket)?;
        let body_len = self.judge(reply::check(&head, written, room, unique))?;
        Ok((head, body_len))
    }

    /// Converts the result of the reply's checks into the caller's error.
    pub(super) fn judge(&self, verdict: Result<usize, Failure>) -> Result<usize, Errno> {
        verdict.map_err(|failure| match failure {
            Failure::Errno(errno) => errno,
            Failure::Impossible => self.impossible(),
        })
    }

    /// Counts an impossible reply and returns the error for it.
    #[cold]
    pub(crate) fn impossible(&self) -> Errno {
        counters::add(&self.tally.impossible_replies, 1);
        Errno::IO
    }

    /// Returns an even number: the odd ones belong to INTERRUPT.
    pub(super) fn next_unique(&self) -> Unique {
        Unique(self.uniques.fetch_add(2, Ordering::Relaxed))
    }

    pub(super) fn queue_of(&self, caller: &Caller<'_>) -> u16 {
        caller.queue % self.request_queues
    }

    /// Returns the caller's group as an extension, if the server wants it.
    pub(crate) fn group_extension(&self, caller: &Caller<'_>) -> Option<GroupExtension> {
        let is_wanted = self.negotiated.flags.contains(InitFlags::CREATE_SUPP_GROUP);
        caller.group.filter(|_| is_wanted).map(GroupExtension::new)
    }
}

impl From<ChannelError> for Errno {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Broken(_) => Self::IO,
            ChannelError::Gone => Self::NOTCONN,
            ChannelError::Dma(DmaError::Exhausted { .. }) => Self::NOMEM,
            ChannelError::Dma(_) => Self::FAULT,
            ChannelError::TooLong { .. } => Self::TOOBIG,
        }
    }
}
