//! The contents of one file: pages of 4 KiB, whatever the guest's have, in chunks of memory that the device fills.
//!
//! [`Pages`] is what one inode caches. Its lock is held for a lookup or a copy, never across a request. A page is
//! valid, busy while a READ fills it, or neither. Data from a READ is not kept if the file was changed in the meantime.
//! [`memory`] limits the chunks of all inodes together.

mod dirty;
pub(crate) mod memory;

use alloc::sync::Arc;
use core::ops::Range;

use hashbrown::HashMap;

use super::{Judge, Validity};
use crate::{
    dma::DmaBuffer,
    memory::{Origin, Target},
    ops::PendingRead,
    session::PAGE_LEN,
};

pub(crate) use dirty::{DirtyRun, Put};

/// Length of the largest chunk in bytes: 32 pages, whose states are the bits of a word. A READ fills at most one chunk.
pub(crate) const CHUNK_LEN: usize = 32 * PAGE_LEN;

/// The cached contents of one inode.
#[derive(Default)]
pub(crate) struct Pages {
    chunks: HashMap<u64, Chunk>,
    /// Counts this guest's changes to the contents, and drops of the cache.
    changes: u64,
    /// Counts the READs that were begun.
    fills: u64,
    /// The size and modification time that the pages belong to.
    basis: Option<Basis>,
    /// How long all of the pages are valid, if there are any; used if the version table decides.
    validity: Option<Validity>,
    /// The size of the file while pages are dirty: the server's size is older.
    dirty_size: Option<u64>,
    dirty_pages: usize,
}

/// Size in bytes, and modification time in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) size: u64,
    pub(crate) mtime: (u64, u32),
}

pub(crate) struct Chunk {
    buffer: Arc<DmaBuffer>,
    /// Distinguishes this chunk from an earlier one at the same index.
    id: u64,
    valid: u32,
    busy: u32,
    /// Pages that were written locally and have not reached the server; valid, and never evicted.
    dirty: u32,
    /// A READ that was started ahead, and the pages that it fills.
    pending: Option<Pending>,
    /// Whether the chunk was used since the memory's clock hand last passed.
    is_used: bool,
}

/// A READ in progress into a chunk.
pub(crate) struct Pending {
    pub(crate) read: PendingRead,
    pub(crate) fill: Fill,
}

/// Pages of a chunk that a READ is to fill.
pub(crate) struct Fill {
    pub(crate) index: u64,
    pub(crate) buffer: Arc<DmaBuffer>,
    /// Range in the buffer, in bytes; whole pages.
    pub(crate) range: Range<usize>,
    changes: u64,
}

/// What the cache holds at an offset of a file.
pub(crate) enum Kept {
    /// This many bytes were copied, at least one.
    Copied(usize),
    /// The caller's memory has to be made present.
    Fault,
    /// A READ that was started ahead is in progress.
    Pending(Pending),
    /// Another caller's READ is in progress.
    Busy,
    /// Nothing is cached.
    Absent,
}

impl Fill {
    /// Returns the offset in the file where it begins, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.index * CHUNK_LEN as u64 + self.range.start as u64
    }
}

impl Pages {
    /// Copies bytes starting at `offset`, up to the first byte that is not cached, the end of the chunk, or memory that
    /// is not present. `to` is not empty.
    pub(crate) fn copy_out(&mut self, offset: u64, to: &mut Target<'_>) -> Kept {
        let (index, at) = place(offset);
        let Some(chunk) = self.chunks.get_mut(&index) else { return Kept::Absent };
        let page = at / PAGE_LEN;
        if chunk.busy >> page & 1 != 0 {
            return chunk.pending.take().map_or(Kept::Busy, Kept::Pending);
        }
        let pages = (chunk.valid >> page).trailing_ones() as usize;
        let len = to.len().min(((page + pages) * PAGE_LEN).min(chunk.buffer.len()).saturating_sub(at));
        if pages == 0 || len == 0 {
            return Kept::Absent;
        }
        chunk.is_used = true;
        match to.put(chunk.buffer.slice(at..at + len)) {
            0 => Kept::Fault,
            count => Kept::Copied(count),
        }
    }

    /// Updates the cached pages, and only those, with the bytes that a WRITE has written. Pages for which the bytes are
    /// not known any more are dropped: those of memory that others may have changed since (`is_stable` is false).
    pub(crate) fn written(&mut self, offset: u64, mut from: Origin<'_>, is_stable: bool) {
        self.changes += 1;
        let mut done = 0;
        while done < from.len() {
            let (index, at) = place(offset + done as u64);
            let len = (PAGE_LEN - at % PAGE_LEN).min(from.len() - done);
            let chunk = self.chunks.get_mut(&index).filter(|chunk| chunk.valid >> (at / PAGE_LEN) & 1 != 0);
            if let Some(chunk) = chunk {
                let is_known = is_stable && from.part(done, len).take(chunk.buffer.slice_mut(at..at + len)) == len;
                if !is_known {
                    chunk.valid &= !mask(at / PAGE_LEN, 1);
                }
            }
            done += len;
        }
    }

    /// Returns how many READs were begun so far.
    pub(crate) fn fills(&self) -> u64 {
        self.fills
    }

    /// Returns whether there is a chunk of at least `len` bytes at `index`.
    pub(crate) fn has_room(&self, index: u64, len: usize) -> bool {
        self.chunks.get(&index).is_some_and(|chunk| chunk.buffer.len() >= len)
    }

    /// Inserts a chunk, which takes over the contents of an earlier one at its index. Returns the chunk to discard.
    #[must_use]
    pub(crate) fn insert(&mut self, index: u64, id: u64, buffer: Arc<DmaBuffer>) -> Option<Chunk> {
        let mut chunk = Chunk { buffer, id, valid: 0, busy: 0, dirty: 0, pending: None, is_used: true };
        if let Some(earlier) = self.chunks.get(&index) {
            // A busy chunk stays because its READ is waited for; a chunk at least as long was inserted by a faster
            // caller.
            if earlier.busy != 0 || earlier.len() >= chunk.len() {
                return Some(chunk);
            }
            chunk.buffer.copy_from(0, &earlier.buffer, 0, earlier.len());
            (chunk.valid, chunk.dirty) = (earlier.valid, earlier.dirty);
        }
        self.chunks.insert(index, chunk)
    }

    /// Marks up to `len_max` bytes busy, starting at the page at `at` of a chunk and ending at the first cached page.
    /// Returns `None` if there is nothing to fill.
    ///
    /// `validity` is that of a request sent now. It counts from here on, since others may wait for the same request.
    pub(crate) fn begin_fill(
        &mut self,
        index: u64,
        at: usize,
        end: usize,
        len_max: usize,
        validity: Validity,
    ) -> Option<Fill> {
        let changes = self.changes;
        let chunk = self.chunks.get_mut(&index)?;
        let first = at / PAGE_LEN;
        let free = (!(chunk.valid | chunk.busy) >> first).trailing_ones() as usize;
        let last = end.min(chunk.buffer.len()).div_ceil(PAGE_LEN);
        let count = free.min(last.saturating_sub(first)).min(len_max / PAGE_LEN);
        if count == 0 {
            return None;
        }
        chunk.busy |= mask(first, count);
        self.fills += 1;
        self.validity = Some(self.validity.map_or(validity, |earlier| earlier.and(validity)));
        let range = first * PAGE_LEN..(first + count) * PAGE_LEN;
        Some(Fill { index, buffer: Arc::clone(&chunk.buffer), range, changes })
    }

    /// Stores a READ with its chunk for the first caller that needs it. Returns it if the chunk no longer exists.
    pub(crate) fn leave(&mut self, pending: Pending) -> Option<Pending> {
        match self.chunks.get_mut(&pending.fill.index) {
            Some(chunk) if Arc::ptr_eq(&chunk.buffer, &pending.fill.buffer) && chunk.pending.is_none() => {
                chunk.pending = Some(pending);
                None
            }
            _ => Some(pending),
        }
    }

    /// Takes any READ that nobody waits for yet.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.chunks.values_mut().find_map(|chunk| chunk.pending.take())
    }

    /// Completes a READ that returned `filled` bytes. They are kept if nothing has changed meanwhile.
    pub(crate) fn end_fill(&mut self, fill: &Fill, filled: usize) {
        let is_current = self.changes == fill.changes;
        let Some(chunk) = self.chunks.get_mut(&fill.index) else { return };
        if !Arc::ptr_eq(&chunk.buffer, &fill.buffer) {
            return;
        }
        let first = fill.range.start / PAGE_LEN;
        chunk.busy &= !mask(first, fill.range.len() / PAGE_LEN);
        let pages = filled.div_ceil(PAGE_LEN);
        if is_current && pages > 0 {
            // Bytes past the end of the file read as zeros once the file grows.
            chunk.buffer.fill(fill.range.start + filled, pages * PAGE_LEN - filled, 0);
            chunk.valid |= mask(first, pages);
        }
    }

    /// Returns whether the pages belong to `basis`; from now on they have to.
    pub(crate) fn settle(&mut self, basis: Basis) -> bool {
        self.basis.replace(basis).is_none_or(|earlier| earlier == basis)
    }

    /// Returns whether everything here is still valid by the version table.
    pub(crate) fn are_valid(&self, judge: &impl Judge) -> bool {
        self.validity.is_none_or(|validity| validity.is_valid(judge))
    }

    /// Removes and returns all chunks that are not dirty.
    #[must_use]
    pub(crate) fn clear(&mut self) -> HashMap<u64, Chunk> {
        self.changes += 1;
        (self.basis, self.validity) = (None, None);
        let mut dropped = core::mem::take(&mut self.chunks);
        if self.dirty_pages > 0 {
            self.chunks = dropped.extract_if(|_, chunk| chunk.dirty != 0).collect();
            self.chunks.values_mut().for_each(|chunk| chunk.valid = chunk.dirty);
        }
        dropped
    }

    /// Removes the chunk unless it is busy or was used since the last call. `Err` says whether it still exists.
    pub(crate) fn evict(&mut self, index: u64, id: u64) -> Result<Chunk, bool> {
        let chunk = self.chunks.get_mut(&index).filter(|chunk| chunk.id == id).ok_or(false)?;
        if core::mem::take(&mut chunk.is_used) || chunk.dirty != 0 || chunk.busy != 0 && chunk.pending.is_none() {
            return Err(true);
        }
        self.chunks.remove(&index).ok_or(false)
    }

    /// Returns whether the chunk exists.
    pub(crate) fn contains(&self, index: u64, id: u64) -> bool {
        self.chunks.get(&index).is_some_and(|chunk| chunk.id == id)
    }
}

impl Chunk {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Takes the READ that was started ahead, if nobody has waited for it.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.pending.take()
    }
}

/// Returns the index of the chunk that an offset lies in, and the offset within it.
pub(crate) fn place(offset: u64) -> (u64, usize) {
    (offset / CHUNK_LEN as u64, (offset % CHUNK_LEN as u64) as usize)
}

/// Returns a mask of `count` bits, at most 32, starting at bit `first`.
fn mask(first: usize, count: usize) -> u32 {
    (((1_u64 << count) - 1) << first) as u32
}
