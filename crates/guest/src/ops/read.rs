//! READ.

use alloc::sync::Arc;
use core::ops::Range;

use transom_wire::{Handle, NodeId, operation::Read, ops::read::ReadIn};

use crate::{
    Errno, Platform,
    channel::Sink,
    dma::DmaBuffer,
    session::{Caller, Plain, Session, Started},
};

/// A READ in progress, to be finished with [`Session::read_finish`].
#[must_use = "a request that is not finished keeps its place in the queue"]
pub struct PendingRead(Started<Read>);

impl<P: Platform> Session<P> {
    /// Reads from `offset`, in bytes, of the open file `fh` into `sink`. Returns the number of bytes read.
    ///
    /// Reads at most [`data_len_max`](crate::session::Negotiated::data_len_max) bytes and leaves the rest of the room
    /// alone. A shorter read than that and than the room means the end of the file. `flags` are those that the file was
    /// opened with.
    pub fn read(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        offset: u64,
        sink: Sink<'_>,
    ) -> Result<usize, Errno> {
        let (sink, len) = cut_sink(sink, self.negotiated().data_len_max)?;
        if len == 0 {
            return Ok(0);
        }
        let arg = read_in(fh, flags, offset, len);
        self.fetch(caller, &mut Plain::<Read>::new(node, caller, &arg), sink)
    }

    /// Reads until `bytes` is full or the file ends, with as many requests as needed.
    ///
    /// An error after the first bytes is left for the next read.
    pub fn read_whole(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut done = 0;
        for piece in bytes.chunks_mut(self.negotiated().data_len_max) {
            let (at, len) = (offset.saturating_add(done as u64), piece.len());
            match self.read(caller, node, fh, flags, at, Sink::Bytes(piece)) {
                Ok(count) if count == len => done += count,
                Ok(count) => return Ok(done + count),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Starts reading into `range` of `buffer`, at most [`data_len_max`](crate::session::Negotiated::data_len_max)
    /// bytes.
    ///
    /// Blocks only while the queue is full. Errors: EINVAL for a range outside the buffer or too long.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub fn read_start(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        offset: u64,
        buffer: Arc<DmaBuffer>,
        range: Range<usize>,
    ) -> Result<PendingRead, Errno> {
        let len = self.checked_range(&buffer, &range, self.negotiated().data_len_max)?;
        let mut head = Plain::<Read>::new(node, caller, &read_in(fh, flags, offset, len));
        self.start(caller, &mut head, None, Some((buffer, range))).map(PendingRead)
    }

    /// Blocks until a READ is over. Returns the number of bytes, as [`Self::read`] does.
    pub fn read_finish(&self, pending: PendingRead) -> Result<usize, Errno> {
        self.finish_fetch(pending.0)
    }
}

pub(super) fn read_in(fh: Handle, flags: u32, offset: u64, len: usize) -> ReadIn {
    ReadIn {
        fh: fh.into(),
        offset: offset.into(),
        size: (len as u32).into(),
        read_flags: 0.into(),
        lock_owner: 0.into(),
        flags: flags.into(),
        padding: 0.into(),
    }
}

/// Returns the first `len_max` bytes of a room. Errors: EINVAL for a range outside its buffer.
fn cut_sink(sink: Sink<'_>, len_max: usize) -> Result<(Sink<'_>, usize), Errno> {
    match sink {
        Sink::Empty => Ok((Sink::Empty, 0)),
        Sink::Bytes(bytes) => {
            let len = bytes.len().min(len_max);
            Ok((Sink::Bytes(&mut bytes[..len]), len))
        }
        Sink::Buffer(buffer, offset, len) => {
            let len = len.min(len_max);
            let is_within = offset.checked_add(len).is_some_and(|end| end <= buffer.len());
            if is_within { Ok((Sink::Buffer(buffer, offset, len), len)) } else { Err(Errno::INVAL) }
        }
    }
}
