//! The pieces of one message, as the ring takes them.

use alloc::vec::Vec;

use crate::{
    channel::{ChannelError, Sink, Source},
    dma::{Direction, DmaBuffer, DmaError, DmaMemory, DmaOps, Lent},
    ring::Segment,
};

/// Segments of head and data when each is contiguous, as in almost every message.
const FEW: usize = 2;
const NONE: Segment = Segment { address: 0, len_bytes: 0 };

/// Segments of one direction; allocates only for data in several pieces.
#[derive(Debug)]
pub(super) struct Segments {
    few: [Segment; FEW],
    count: usize,
    /// All segments, once there are more than a few.
    many: Vec<Segment>,
}

impl Segments {
    pub(super) fn new() -> Self {
        Self { few: [NONE; FEW], count: 0, many: Vec::new() }
    }

    /// Ignores a piece without bytes. `len_bytes` is below 4 GiB: the limits of a message ensure it.
    pub(super) fn push(&mut self, address: u64, len_bytes: usize) {
        if len_bytes == 0 {
            return;
        }
        let segment = Segment { address, len_bytes: len_bytes as u32 };
        if let Some(place) = self.few.get_mut(self.count) {
            *place = segment;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(segment);
        }
        self.count += 1;
    }

    /// Makes room for `count` more, so that adding them cannot fail.
    fn reserve(&mut self, count: usize) -> Result<(), ChannelError> {
        if self.count + count <= FEW {
            return Ok(());
        }
        let wanted = FEW + count;
        let no_memory = |_| DmaError::Exhausted { wanted_bytes: wanted * size_of::<Segment>(), pool_bytes: 0 };
        Ok(self.many.try_reserve_exact(wanted).map_err(no_memory)?)
    }

    pub(super) fn as_slice(&self) -> &[Segment] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }
}

/// Data of one direction, reachable by the device until this is dropped.
pub(super) enum Data<'a> {
    Lent(Lent<'a>),
    Buffer { buffer: &'a DmaBuffer, offset: usize, len_bytes: usize },
}

impl<'a> Data<'a> {
    pub(super) fn of_source(ops: &'a dyn DmaOps, source: Source<'a>) -> Result<Self, ChannelError> {
        match source {
            Source::Empty => Ok(Self::Lent(Lent::none(ops))),
            Source::Bytes(bytes) => Ok(Self::Lent(Lent::to_device(ops, bytes)?)),
            Source::Slices(pieces) => Ok(Self::Lent(Lent::pieces_to_device(ops, pieces)?)),
            Source::Buffer(buffer, offset, len_bytes) => {
                Self::of_buffer(ops, buffer, offset, len_bytes, Direction::ToDevice)
            }
        }
    }

    pub(super) fn of_sink(ops: &'a dyn DmaOps, sink: Sink<'a>) -> Result<Self, ChannelError> {
        match sink {
            Sink::Empty => Ok(Self::Lent(Lent::none(ops))),
            Sink::Bytes(bytes) => Ok(Self::Lent(Lent::from_device(ops, bytes)?)),
            Sink::Slices(pieces) => Ok(Self::Lent(Lent::pieces_from_device(ops, pieces)?)),
            Sink::Buffer(buffer, offset, len_bytes) => {
                Self::of_buffer(ops, buffer, offset, len_bytes, Direction::FromDevice)
            }
        }
    }

    fn of_buffer(
        ops: &dyn DmaOps,
        buffer: &'a DmaBuffer,
        offset: usize,
        len_bytes: usize,
        direction: Direction,
    ) -> Result<Self, ChannelError> {
        check_buffer(ops, buffer, offset, len_bytes)?;
        buffer.sync_for_device(offset, len_bytes, direction);
        Ok(Self::Buffer { buffer, offset, len_bytes })
    }

    pub(super) fn push_to(&self, segments: &mut Segments) -> Result<(), ChannelError> {
        match self {
            Self::Lent(lent) => {
                segments.reserve(lent.pieces().count())?;
                lent.pieces().for_each(|(address, len_bytes)| segments.push(address, len_bytes));
            }
            &Self::Buffer { buffer, offset, len_bytes } => segments.push(buffer.address() + offset as u64, len_bytes),
        }
        Ok(())
    }

    /// Ends the use by the device, which has written the first `written_bytes`.
    pub(super) fn end(self, written_bytes: usize) {
        match self {
            Self::Lent(lent) => lent.end(written_bytes),
            Self::Buffer { buffer, offset, len_bytes } => buffer.sync_for_cpu(offset, written_bytes.min(len_bytes)),
        }
    }
}

/// Checks that `ops`, which are those of the device, have allocated the buffer, and that a range lies within it.
pub(super) fn check_buffer(
    ops: &dyn DmaOps,
    buffer: &DmaBuffer,
    offset: usize,
    len_bytes: usize,
) -> Result<(), ChannelError> {
    if !buffer.is_of(ops) {
        return Err(DmaError::OtherDevice.into());
    }
    let len_max_bytes = buffer.len();
    match offset.checked_add(len_bytes) {
        Some(end) if end <= len_max_bytes => Ok(()),
        end => Err(ChannelError::TooLong { len_bytes: end.unwrap_or(usize::MAX), len_max_bytes }),
    }
}

/// Bytes of a slot's own memory for the head of a message and of its reply. The longest common ones fit: a BATCH_FORGET
/// of 64 inodes (1072 bytes), a RENAME2 of two names of 255 bytes with its reply.
pub(super) const SLOT_LEN: usize = 18 * CACHE_LINE;

/// The head of a message and of its reply share no cache line.
const CACHE_LINE: usize = 64;

/// The memory of one message's heads: in its slot or, if they are long, separately allocated.
pub(super) struct Heads<'q> {
    slots: &'q DmaBuffer,
    start: usize,
    long: Option<DmaBuffer>,
    head_len: usize,
    reply_offset: usize,
    reply_len: usize,
}

impl<'q> Heads<'q> {
    /// Puts `head` where the device can read it, followed by room for the reply's head.
    pub(super) fn new(
        slots: &'q DmaBuffer,
        slot: u16,
        head: &[u8],
        reply_len: usize,
        allocate: impl FnOnce(usize) -> Result<DmaBuffer, DmaError>,
    ) -> Result<Self, DmaError> {
        let reply_offset = head.len().next_multiple_of(CACHE_LINE);
        let is_short = reply_offset + reply_len <= SLOT_LEN;
        let long = if is_short { None } else { Some(allocate(reply_offset + reply_len)?) };
        let start = if is_short { usize::from(slot) * SLOT_LEN } else { 0 };
        let heads = Self { slots, start, long, head_len: head.len(), reply_offset, reply_len };
        heads.memory().write(start, head);
        Ok(heads)
    }

    fn memory(&self) -> &DmaMemory {
        self.long.as_ref().unwrap_or(self.slots)
    }

    pub(super) fn push_head(&self, readable: &mut Segments) {
        readable.push(self.memory().address() + self.start as u64, self.head_len);
    }

    pub(super) fn push_reply(&self, writable: &mut Segments) {
        writable.push(self.memory().address() + (self.start + self.reply_offset) as u64, self.reply_len);
    }

    /// Copies the written part of the reply's head to `reply_head`.
    pub(super) fn read_reply(&self, reply_head: &mut [u8], written_bytes: usize) {
        let written_bytes = written_bytes.min(self.reply_len).min(reply_head.len());
        self.memory().read(self.start + self.reply_offset, &mut reply_head[..written_bytes]);
    }

    /// Returns what must be kept while the device may access it, and how to find the reply in it.
    pub(super) fn detach(self) -> KeptHeads {
        let Self { start, long, reply_offset, reply_len, .. } = self;
        KeptHeads { start, long, reply_offset, reply_len }
    }
}

/// [`Heads`] of a message that no caller waits for yet.
pub(super) struct KeptHeads {
    start: usize,
    long: Option<DmaBuffer>,
    reply_offset: usize,
    reply_len: usize,
}

impl KeptHeads {
    /// Returns whether they have memory of their own.
    pub(super) fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// Copies the written part of the reply's head to `reply_head`. `slots` is the memory of all slots.
    pub(super) fn read_reply(&self, slots: &DmaBuffer, reply_head: &mut [u8], written_bytes: usize) {
        let written_bytes = written_bytes.min(self.reply_len).min(reply_head.len());
        let memory = self.long.as_ref().unwrap_or(slots);
        memory.read(self.start + self.reply_offset, &mut reply_head[..written_bytes]);
    }
}
