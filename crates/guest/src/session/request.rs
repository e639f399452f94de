//! The caller of a request, and the one path that every request takes.

use core::sync::atomic::Ordering;

use transom_wire::{
    Unique,
    operation::{Operation, Row, parts::XattrOut},
    ops::{init::InitFlags, xattr::GetxattrOut},
};
use zerocopy::IntoBytes;

use super::{
    Interrupt, Session, counters,
    head::{GroupExtension, Head, complete_header},
    raised::{RaisedSlots, WithTrailer},
    reply::{self, Failure, Room, Structure, WithBytes},
};
use crate::{
    Errno, Platform,
    channel::{ChannelError, Message, Sink, Source},
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
    /// Where to note how the request has raised slots of the version table. Replies say so if OWN_CHANGES is on.
    pub raised: Option<&'a RaisedSlots>,
}

impl Caller<'_> {
    /// Returns the same caller, for requests of which `raised` notes what slots they raise.
    #[must_use]
    pub fn noting<'a>(&'a self, raised: &'a RaisedSlots) -> Caller<'a> {
        Caller { raised: Some(raised), ..*self }
    }
}

impl<P: Platform> Session<P> {
    /// Sends a request whose reply is one structure, or only a header, and returns that reply.
    pub(crate) fn ask<O, const N: usize>(&self, caller: &Caller<'_>, head: &mut Head<O, N>) -> Result<O::Reply, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        self.exchange::<O>(caller, head.as_mut_bytes(), Source::Empty)
    }

    /// Does the same as [`Self::ask`]. Returns `None` if the server does not know the operation.
    pub(crate) fn ask_if_known<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
    ) -> Result<Option<O::Reply>, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        self.if_known(O::OPCODE, || self.ask(caller, head))
    }

    /// Does the same as [`Self::ask`] for a request with data.
    pub(crate) fn ask_with<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
        data: Source<'_>,
    ) -> Result<O::Reply, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        self.exchange::<O>(caller, head.as_mut_bytes(), data)
    }

    /// Sends the bytes of a request for `O`, which begin with its header, and returns its reply.
    pub(crate) fn exchange<O>(&self, caller: &Caller<'_>, head: &mut [u8], data: Source<'_>) -> Result<O::Reply, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        if let Some(raised) = caller.raised.filter(|_| self.has_trailer(O::ROW)) {
            return self.exchange_noting::<O>(caller, head, data, raised);
        }
        let mut room = Room::<O::Reply>::new();
        let body_len = self.transact(caller, head, data, room.as_mut_bytes(), Sink::Empty)?;
        if body_len == size_of::<O::Reply>() { Ok(room.body) } else { Err(self.impossible_eio()) }
    }

    /// Returns whether the replies to an operation may have a trailer.
    fn has_trailer(&self, row: &Row) -> bool {
        self.negotiated.flags.contains(InitFlags::OWN_CHANGES) && !row.changes.is_empty()
    }

    /// Does the same as [`Self::exchange`], with room for a trailer, which is noted.
    fn exchange_noting<O>(
        &self,
        caller: &Caller<'_>,
        head: &mut [u8],
        data: Source<'_>,
        raised: &RaisedSlots,
    ) -> Result<O::Reply, Errno>
    where
        O: Operation<Reply: Structure>,
    {
        let mut room = Room::<WithTrailer<O::Reply>>::new();
        let body_len = self.transact(caller, head, data, room.as_mut_bytes(), Sink::Empty)?;
        raised.note(room.body.trailer(body_len).ok_or_else(|| self.impossible_eio())?);
        Ok(room.body.body)
    }

    /// Sends a request with data, whose reply is a structure and then bytes. Returns the structure and the number of
    /// bytes, at most the room.
    pub(crate) fn fetch_with<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
        data: Source<'_>,
        sink: Sink<'_>,
    ) -> Result<(<O::Reply as WithBytes>::Structure, usize), Errno>
    where
        O: Operation<Reply: WithBytes>,
    {
        let mut room = Room::<<O::Reply as WithBytes>::Structure>::new();
        let body_len = self.transact(caller, head.as_mut_bytes(), data, room.as_mut_bytes(), sink)?;
        let fixed_len = size_of::<<O::Reply as WithBytes>::Structure>();
        let bytes_len = body_len.checked_sub(fixed_len).ok_or_else(|| self.impossible_eio())?;
        Ok((room.body, bytes_len))
    }

    /// Sends a request whose reply is bytes; returns their number, at most the room.
    pub(crate) fn fetch<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
        sink: Sink<'_>,
    ) -> Result<usize, Errno>
    where
        O: Operation<Reply: WithBytes<Structure = ()>>,
    {
        self.fetch_with(caller, head, Source::Empty, sink).map(|((), len)| len)
    }

    /// Sends a request without room for an attribute's bytes; returns the reply that states their length.
    pub(crate) fn measure<O, const N: usize>(
        &self,
        caller: &Caller<'_>,
        head: &mut Head<O, N>,
    ) -> Result<GetxattrOut, Errno>
    where
        O: Operation<Reply = XattrOut>,
    {
        let mut room = Room::<GetxattrOut>::new();
        let body_len = self.transact(caller, head.as_mut_bytes(), Source::Empty, room.as_mut_bytes(), Sink::Empty)?;
        if body_len == size_of::<GetxattrOut>() { Ok(room.body) } else { Err(self.impossible_eio()) }
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

    /// Converts the result of the reply's checks into the caller's error.
    pub(super) fn judge(&self, verdict: Result<usize, Failure>) -> Result<usize, Errno> {
        verdict.map_err(|failure| match failure {
            Failure::Errno(errno) => errno,
            Failure::Impossible => self.impossible_eio(),
        })
    }

    /// Counts an impossible reply and returns EIO, the error for it.
    #[cold]
    pub(crate) fn impossible_eio(&self) -> Errno {
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
            ChannelError::Dma(DmaError::OtherDevice) => Self::INVAL,
            ChannelError::Dma(_) => Self::FAULT,
            ChannelError::TooLong { .. } => Self::TOOBIG,
        }
    }
}
