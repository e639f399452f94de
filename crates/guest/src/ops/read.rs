//! READ.

use alloc::sync::Arc;
use core::ops::Range;

use transom_wire::{Handle, NodeId, operation::Read, ops::read::ReadIn};

use crate::{
    Errno, Platform,
    channel::{ChannelError, Sink},
    dma::DmaBuffer,
    memory::{IoSliceMut, Target},
    session::{Caller, Plain, Session, Started},
};

/// The most that is copied at once between memory that the device cannot reach and a buffer that it can: as much as a
/// chunk of the page cache.
pub(super) const COPY_LEN_MAX: usize = 128 << 10;

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
        self.read_to(caller, node, fh, flags, offset, Target::new(&mut IoSliceMut::alone(bytes)))
    }

    /// As [`Self::read_whole`], into anything. Memory that may fault gets copies of what was read. No lock is held.
    pub(crate) fn read_to(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        offset: u64,
        mut to: Target<'_>,
    ) -> Result<usize, Errno> {
        let len_max = self.negotiated().data_len_max;
        let (mut done, mut buffer) = (0, None);
        while done < to.len() {
            let at = offset.saturating_add(done as u64);
            let mut rest = to.rest(done);
            // How much was asked for, what has come, and what of it has arrived.
            let (asked, read, arrived) = if let Some(pieces) = rest.in_place(&**self.channel(), len_max) {
                let read = self.read(caller, node, fh, flags, at, Sink::Slices(pieces));
                (pieces.len_bytes(), read, read.unwrap_or(0))
            } else {
                let asked = rest.len().min(len_max).min(COPY_LEN_MAX);
                match self.copy_buffer(&mut buffer, asked) {
                    Ok(buffer) => {
                        let read = self.read(caller, node, fh, flags, at, Sink::Buffer(buffer, 0, asked));
                        (asked, read, rest.put_all(buffer.slice(0..read.unwrap_or(0))))
                    }
                    Err(error) => (asked, Err(error), 0),
                }
            };
            done += arrived;
            match read {
                Ok(count) if arrived < count && done == 0 => return Err(Errno::FAULT),
                Ok(count) if arrived < count || count < asked => break,
                Ok(_) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Returns the buffer through which an operation copies `len` bytes at most; allocates it at first.
    pub(super) fn copy_buffer<'b>(
        &self,
        buffer: &'b mut Option<DmaBuffer>,
        len: usize,
    ) -> Result<&'b DmaBuffer, Errno> {
        if buffer.is_none() {
            *buffer = Some(self.channel().buffer(len).map_err(ChannelError::from)?);
        }
        buffer.as_ref().ok_or(Errno::NOMEM)
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
        Sink::Slices(pieces) => {
            let pieces = pieces.first(len_max);
            Ok((Sink::Slices(pieces), pieces.len_bytes()))
        }
        Sink::Buffer(buffer, offset, len) => {
            let len = len.min(len_max);
            let is_within = offset.checked_add(len).is_some_and(|end| end <= buffer.len());
            if is_within { Ok((Sink::Buffer(buffer, offset, len), len)) } else { Err(Errno::INVAL) }
        }
    }
}
