//! Ordinary memory lent to the device for one message, in as many pieces as the DMA operations need.

#![expect(unsafe_code, reason = "a slice becomes a mapping here, for as long as it is borrowed")]

use alloc::vec::Vec;
use core::{marker::PhantomData, ptr::NonNull};

use super::{Direction, DmaError, DmaOps, Mapped};
use crate::memory::{Pieces, PiecesMut};

/// The pieces of one slice, or of a list. Its holder returns it with [`Self::end`], or drops it, only once the device
/// no longer knows of it.
pub(crate) struct Lent<'a> {
    ops: &'a dyn DmaOps,
    /// Almost always the only piece, so that nothing is allocated for it.
    first: Option<Mapped>,
    more: Vec<Mapped>,
    written_bytes: usize,
    _bytes: PhantomData<&'a mut [u8]>,
}

impl<'a> Lent<'a> {
    /// Lends nothing.
    pub(crate) fn none(ops: &'a dyn DmaOps) -> Self {
        Self { ops, first: None, more: Vec::new(), written_bytes: 0, _bytes: PhantomData }
    }

    /// Lends bytes for the device to read.
    pub(crate) fn to_device(ops: &'a dyn DmaOps, bytes: &'a [u8]) -> Result<Self, DmaError> {
        Self::none(ops).and(NonNull::from(bytes).cast(), bytes.len(), Direction::ToDevice)
    }

    /// Lends bytes for the device to write.
    pub(crate) fn from_device(ops: &'a dyn DmaOps, bytes: &'a mut [u8]) -> Result<Self, DmaError> {
        let len_bytes = bytes.len();
        Self::none(ops).and(NonNull::from(bytes).cast(), len_bytes, Direction::FromDevice)
    }

    /// Lends pieces for the device to read, each where it is: see [`DmaOps::is_in_place`].
    pub(crate) fn pieces_to_device(ops: &'a dyn DmaOps, pieces: Pieces<'a>) -> Result<Self, DmaError> {
        pieces.places().try_fold(Self::none(ops), |lent, (start, len)| lent.and(start, len, Direction::ToDevice))
    }

    /// Lends pieces for the device to write, each where it is.
    pub(crate) fn pieces_from_device(ops: &'a dyn DmaOps, pieces: PiecesMut<'a>) -> Result<Self, DmaError> {
        pieces.places().try_fold(Self::none(ops), |lent, (start, len)| lent.and(start, len, Direction::FromDevice))
    }

    /// Lends more. `start` and the `len_bytes` from there are borrowed for `'a`, for the access in `direction`.
    fn and(mut self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Self, DmaError> {
        let ops = self.ops;
        let (piece_max, boundary) = (ops.mapping_len_max().max(1), ops.boundary().unwrap_or(usize::MAX).max(1));
        let mut done = 0;
        while done < len_bytes {
            // SAFETY: `done` is below the length of the slice.
            let at = unsafe { start.add(done) };
            let len = (len_bytes - done).min(piece_max).min(boundary - at.addr().get() % boundary);
            if self.first.is_some() {
                let no_memory = |_| DmaError::Exhausted { wanted_bytes: size_of::<Mapped>(), pool_bytes: 0 };
                self.more.try_reserve(1).map_err(no_memory)?;
            }
            // SAFETY:
            // 1. The piece lies within memory that is borrowed for `'a`, mutably if the device writes. Others access
            //    it only if `is_in_place` has said that the operations do not.
            // 2. `self` unmaps it when it is dropped, within `'a`.
            let mapped = unsafe { ops.map(at, len, direction)? };
            if self.first.is_none() {
                self.first = Some(mapped);
            } else {
                self.more.push(mapped);
            }
            done += len;
        }
        Ok(self)
    }

    /// Returns address and length of each piece, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, usize)> {
        self.first.iter().chain(&self.more).map(|mapped| (mapped.address, mapped.len_bytes))
    }

    /// Returns the memory to its owner; the device has written the first `written_bytes`.
    pub(crate) fn end(mut self, written_bytes: usize) {
        self.written_bytes = written_bytes;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut written_bytes = self.written_bytes;
        for mapped in self.first.take().into_iter().chain(self.more.drain(..)) {
            let written_here = written_bytes.min(mapped.len_bytes);
            written_bytes -= written_here;
            // SAFETY: it is a mapping of these operations, and its memory is borrowed until now.
            unsafe { self.ops.unmap(mapped, written_here) }
        }
    }
}
