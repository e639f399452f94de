//! A request on its way: who asks, the bytes before the data, and the one path that every request takes.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use transom_wire::{
    Name, NodeId, Opcode, Unique,
    extension::{EXT_GROUPS, ExtHeader},
    header::InHeader,
    ops::init::InitFlags,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U32};

use super::{
    Interrupt, Session, counters,
    reply::{self, Failure, HEADER_LEN, Room},
};
use crate::{
    Errno, Platform,
    channel::{ChannelError, Message, OwnedMessage, OwnedReply, Sink, Source, Ticket},
    dma::DmaError,
};

/// On whose behalf a request is sent.
#[derive(Clone, Copy, Default)]
pub struct Caller<'a> {
    /// File-system uid.
    pub uid: u32,
    /// File-system gid.
    pub gid: u32,
    /// Process, 0 where there are none.
    pub pid: u32,
    /// The group beside `gid` that a new file's directory demands; sent where CREATE_SUPP_GROUP is on.
    pub group: Option<u32>,
    /// Permissions that new files do not get.
    pub umask: u32,
    /// Which request queue to take, modulo the number that there are.
    pub queue: u16,
    /// Ends waiting early.
    pub interrupt: Option<&'a Interrupt>,
}

/// Room for a header and fixed arguments.
pub(crate) const PLAIN: usize = 128;
/// Room for a header, arguments, one name and an extension.
pub(crate) const NAMED: usize = size_of::<InHeader>() + 16 + NAME_ROOM + size_of::<GroupExtension>();
/// Room for a header, arguments and two names.
pub(crate) const TWICE_NAMED: usize = size_of::<InHeader>() + 16 + 2 * NAME_ROOM;
/// A name of 255 bytes and its NUL.
const NAME_ROOM: usize = 256;

/// Header, arguments and names of a request, on the stack.
pub(crate) struct Head<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// The extension that carries one supplementary group.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupExtension {
    header: ExtHeader,
    count: U32,
    gid: U32,
}
const _: () = assert!(size_of::<GroupExtension>() == 16);

impl<const N: usize> Head<N> {
    /// Begins a request about `node`.
    pub(crate) fn new(opcode: Opcode, node: NodeId, caller: &Caller<'_>) -> Self {
        let mut head = Self { bytes: [0; N], len: 0 };
        head.push(header(opcode, node, caller).as_bytes());
        head
    }

    /// Appends arguments.
    pub(crate) fn arg<T: IntoBytes + Immutable>(&mut self, arg: &T) -> &mut Self {
        self.push(arg.as_bytes());
        self
    }

    /// Appends a name and its NUL.
    pub(crate) fn name(&mut self, name: Name<'_>) -> &mut Self {
        self.string(name.as_bytes())
    }

    /// Appends at most 255 bytes and a NUL.
    pub(crate) fn string(&mut self, string: &[u8]) -> &mut Self {
        self.push(string);
        self.push(&[0]);
        self
    }

    /// Appends what an operation that creates carries beside its arguments.
    pub(crate) fn extension(&mut self, extension: Option<GroupExtension>) -> &mut Self {
        if let Some(extension) = extension {
            self.push(extension.as_bytes());
            self.header().total_extlen = EXTENSION_UNITS.into();
        }
        self
    }

    /// The arguments are of this crate and the names have their bound, so that a request fits the `N` chosen for it.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn header(&mut self) -> &mut InHeader {
        InHeader::mut_from_prefix(&mut self.bytes).expect("a head has room for its header").0
    }

    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// Extensions are counted in units of 8 bytes.
pub(crate) const EXTENSION_UNITS: u16 = (size_of::<GroupExtension>() / 8) as u16;

/// A header; length and number are filled in when it is sent.
pub(crate) fn header(opcode: Opcode, node: NodeId, caller: &Caller<'_>) -> InHeader {
    InHeader {
        len: 0.into(),
        opcode: (opcode as u32).into(),
        unique: 0.into(),
        nodeid: node.into(),
        uid: caller.uid.into(),
        gid: caller.gid.into(),
        pid: caller.pid.into(),
        total_extlen: 0.into(),
        padding: 0.into(),
    }
}

impl<P: Platform> Session<P> {
    /// Sends a request that is answered with one structure.
    pub(crate) fn ask<T, const N: usize>(&self, caller: &Caller<'_>, head: &mut Head<N>) -> Result<T, Errno>
    where
        T: FromBytes + IntoBytes + KnownLayout + Unaligned,
    {
        self.ask_with(caller, head, Source::Empty)
    }

    /// Sends a request and data, answered with one structure.
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

    /// Sends a request that is answered with a header alone.
    pub(crate) fn tell<const N: usize>(&self, caller: &Caller<'_>, head: &mut Head<N>) -> Result<(), Errno> {
        self.ask::<[u8; 0], N>(caller, head).map(|[]| ())
    }

    /// Sends a request that is answered with bytes; gives how many there are, at most the room.
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
    /// Gives the length of the reply behind its header. The number and the length of the request are filled in here.
    pub(crate) fn transact(
        &self,
        caller: &Caller<'_>,
        head: &mut [u8],
        data: Source<'_>,
        reply_head: &mut [u8],
        reply_data: Sink<'_>,
    ) -> Result<usize, Errno> {
        let unique = self.next_unique();
        let room = reply_head.len() + sink_len(&reply_data);
        complete_header(head, source_len(&data), unique);
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
        let unique = self.next_unique();
        let data_len = message.data.as_ref().map_or(0, |(_, range)| range.len());
        complete_header(head.as_mut_bytes(), data_len, unique);
        message.head.extend_from_slice(head.as_mut_bytes());
        let ticket = self.channel.start(self.queue_of(caller), message)?;
        Ok((ticket, unique))
    }

    /// Blocks until a started request is over; gives its reply's header and fixed part, and the bytes behind the header.
    pub(crate) fn finish(&self, ticket: Ticket, unique: Unique, room: usize) -> Result<(Vec<u8>, usize), Errno> {
        let OwnedReply { head, written } = self.channel.finish(ticket)?;
        let body_len = self.judge(reply::check(&head, written, room, unique))?;
        Ok((head, body_len))
    }

    /// Turns the verdict about a reply into the caller's error.
    pub(super) fn judge(&self, verdict: Result<usize, Failure>) -> Result<usize, Errno> {
        verdict.map_err(|failure| match failure {
            Failure::Errno(errno) => errno,
            Failure::Impossible => self.impossible(),
        })
    }

    /// Counts a reply that cannot be; gives the error for it.
    #[cold]
    pub(crate) fn impossible(&self) -> Errno {
        counters::add(&self.tally.impossible_replies, 1);
        Errno::IO
    }

    /// Even numbers: the odd ones are INTERRUPT's.
    pub(super) fn next_unique(&self) -> Unique {
        Unique(self.uniques.fetch_add(2, Ordering::Relaxed))
    }

    pub(super) fn queue_of(&self, caller: &Caller<'_>) -> u16 {
        caller.queue % self.request_queues
    }

    /// The caller's group as an extension, where the server wants it.
    pub(crate) fn group_extension(&self, caller: &Caller<'_>) -> Option<GroupExtension> {
        let is_wanted = self.negotiated.flags.contains(InitFlags::CREATE_SUPP_GROUP);
        let gid = caller.group.filter(|_| is_wanted)?;
        let header = ExtHeader { size: (size_of::<GroupExtension>() as u32).into(), type_: EXT_GROUPS.into() };
        Some(GroupExtension { header, count: 1.into(), gid: gid.into() })
    }
}

pub(super) fn complete_header(head: &mut [u8], data_len: usize, unique: Unique) {
    let len = head.len() + data_len;
    let header = InHeader::mut_from_prefix(head).expect("a request begins with its header").0;
    header.len = (len as u32).into();
    header.unique = unique.into();
}

fn source_len(source: &Source<'_>) -> usize {
    match source {
        Source::Empty => 0,
        Source::Bytes(bytes) => bytes.len(),
        Source::Buffer(_, _, len) => *len,
    }
}

fn sink_len(sink: &Sink<'_>) -> usize {
    match sink {
        Sink::Empty => 0,
        Sink::Bytes(bytes) => bytes.len(),
        Sink::Buffer(_, _, len) => *len,
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
