//! WRITE.

use alloc::sync::Arc;
use core::ops::Range;

use transom_wire::{
    Handle, NodeId,
    operation::Write,
    ops::write::{WriteFlags, WriteIn, WriteOut},
};

use super::read::COPY_LEN_MAX;
use crate::{
    Errno, Platform,
    channel::Source,
    dma::DmaBuffer,
    memory::{IoSlice, Origin},
    session::{Caller, Plain, Session, Started},
};

/// A WRITE in progress, to be finished with [`Session::write_finish`].
#[must_use = "a request that is not finished keeps its place in the queue"]
pub struct PendingWrite {
    started: Started<Write>,
    len: usize,
}

impl<P: Platform> Session<P> {
    /// Writes `source` at `offset`, in bytes, of the open file `fh`. Returns the number of bytes written.
    ///
    /// Sends at most [`max_write`](crate::session::Negotiated::max_write) bytes of it. `flags` are those that the file
    /// was opened with. Errors: also EIO if there are bytes to write and the server writes none.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub fn write(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        write_flags: WriteFlags,
        offset: u64,
        source: Source<'_>,
    ) -> Result<usize, Errno> {
        let (source, len) = cut_source(source, self.negotiated().max_write)?;
        if len == 0 {
            return Ok(0);
        }
        let arg = write_in(fh, flags, write_flags, offset, len);
        let out = self.ask_with(caller, &mut Plain::<Write>::new(node, caller, &arg), source)?;
        self.taken(&out, len)
    }

    /// Writes all of `bytes`, with as many requests as needed.
    ///
    /// Returns the number of bytes written before the first error, or the error if no bytes were written.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub fn write_whole(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        write_flags: WriteFlags,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let mut bytes = IoSlice::new(bytes);
        self.write_of(caller, node, fh, flags, write_flags, offset, Origin::new(&mut bytes), &mut |_, _, _| {})
    }

    /// As [`Self::write_whole`], from anything, without waiting for memory that may fault.
    ///
    /// Calls `on_written` after each request with the number of bytes written before it, the bytes that it has written,
    /// and whether they are still the same: others may change memory that they share.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub(crate) fn write_of(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        write_flags: WriteFlags,
        offset: u64,
        mut from: Origin<'_>,
        on_written: &mut dyn FnMut(usize, Origin<'_>, bool),
    ) -> Result<usize, Errno> {
        let len_max = self.negotiated().max_write;
        let (mut done, mut buffer) = (0, None);
        while done < from.len() {
            let at = offset.saturating_add(done as u64);
            let mut rest = from.rest(done);
            let written = if let Some(pieces) = rest.in_place(&**self.channel(), len_max) {
                let written = self.write(caller, node, fh, flags, write_flags, at, Source::Slices(pieces));
                let is_stable = rest.is_stable();
                written.inspect(|&count| on_written(done, rest.part(0, count), is_stable))
            } else {
                let len = rest.len().min(len_max).min(COPY_LEN_MAX);
                self.copy_buffer(&mut buffer, len).and_then(|buffer| {
                    let len = rest.take(buffer.slice_mut(0..len));
                    if len == 0 {
                        return Err(Errno::FAULT);
                    }
                    let source = Source::Buffer(buffer, 0, len);
                    let written = self.write(caller, node, fh, flags, write_flags, at, source)?;
                    on_written(done, Origin::new(&mut buffer.slice(0..written)), true);
                    Ok(written)
                })
            };
            match written {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Starts writing `range` of `buffer`, at most [`max_write`](crate::session::Negotiated::max_write) bytes.
    ///
    /// Blocks only while the queue is full. Errors: EINVAL for a range outside the buffer or too long.
    #[expect(clippy::too_many_arguments, reason = "the protocol has them")]
    pub fn write_start(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Handle,
        flags: u32,
        write_flags: WriteFlags,
        offset: u64,
        buffer: Arc<DmaBuffer>,
        range: Range<usize>,
    ) -> Result<PendingWrite, Errno> {
        let len = self.checked_range(&buffer, &range, self.negotiated().max_write)?;
        let arg = write_in(fh, flags, write_flags, offset, len);
        let started = self.start(caller, &mut Plain::<Write>::new(node, caller, &arg), Some((buffer, range)), None)?;
        Ok(PendingWrite { started, len })
    }

    /// Blocks until a WRITE is over. Returns the number of bytes written, as [`Self::write`] does.
    pub fn write_finish(&self, pending: PendingWrite) -> Result<usize, Errno> {
        let out = self.finish(pending.started)?;
        self.taken(&out, pending.len)
    }

    /// Returns whether [`Self::write_finish`] would return without blocking.
    pub fn is_write_finished(&self, pending: &PendingWrite) -> bool {
        self.channel().is_finished(&pending.started.ticket)
    }

    pub(crate) fn taken(&self, out: &WriteOut, len: usize) -> Result<usize, Errno> {
        let taken = out.size.get() as usize;
        let is_possible = taken <= len && (taken > 0 || len == 0);
        if is_possible { Ok(taken) } else { Err(self.impossible_eio()) }
    }

    /// Returns the length of a range within `buffer`. Errors: EINVAL if the range is invalid or longer than `len_max`.
    pub(super) fn checked_range(
        &self,
        buffer: &DmaBuffer,
        range: &Range<usize>,
        len_max: usize,
    ) -> Result<usize, Errno> {
        let len = range.end.checked_sub(range.start).ok_or(Errno::INVAL)?;
        if range.end <= buffer.len() && len <= len_max { Ok(len) } else { Err(Errno::INVAL) }
    }
}

fn write_in(fh: Handle, flags: u32, write_flags: WriteFlags, offset: u64, len: usize) -> WriteIn {
    WriteIn {
        fh: fh.into(),
        offset: offset.into(),
        size: (len as u32).into(),
        write_flags: write_flags.bits().into(),
        lock_owner: 0.into(),
        flags: flags.into(),
        padding: 0.into(),
    }
}

/// Returns the first `len_max` bytes of a source. Errors: EINVAL for a range outside its buffer.
fn cut_source(source: Source<'_>, len_max: usize) -> Result<(Source<'_>, usize), Errno> {
    match source {
        Source::Empty => Ok((Source::Empty, 0)),
        Source::Bytes(bytes) => {
            let len = bytes.len().min(len_max);
            Ok((Source::Bytes(&bytes[..len]), len))
        }
        Source::Slices(pieces) => {
            let pieces = pieces.first(len_max);
            Ok((Source::Slices(pieces), pieces.len_bytes()))
        }
        Source::Buffer(buffer, offset, len) => {
            let len = len.min(len_max);
            let is_within = offset.checked_add(len).is_some_and(|end| end <= buffer.len());
            if is_within { Ok((Source::Buffer(buffer, offset, len), len)) } else { Err(Errno::INVAL) }
        }
    }
}
