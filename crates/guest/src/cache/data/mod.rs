//! The contents of one file: pages of 4 KiB in chunks of memory that the device fills.
//!
//! [`Pages`] is what one inode keeps, under one lock that is held for a look or a copy, never for a request. A page is
//! valid, or busy while a READ fills it, or neither. What a READ brings is not kept where the file was changed in the
//! meantime. [`memory`] bounds the chunks of all inodes together.

mod dirty;
pub(crate) mod memory;

use alloc::sync::Arc;
use core::ops::Range;

use hashbrown::HashMap;

use crate::{dma::DmaBuffer, ops::PendingRead, session::PAGE_LEN};

pub(crate) use dirty::DirtyRun;

/// Bytes of the largest chunk: 32 pages, whose states are the bits of a word. A READ fills at most one.
pub(crate) const CHUNK_LEN: usize = 32 * PAGE_LEN;

/// What one inode keeps of its contents.
#[derive(Default)]
pub(crate) struct Pages {
    chunks: HashMap<u64, Chunk>,
    /// Counts this guest's changes of the contents, and drops.
    changes: u64,
    /// The size and time of modification that the pages belong to.
    basis: Option<Basis>,
    /// The size of the file while pages are dirty: the server's is older.
    dirty_size: Option<u64>,
    dirty_pages: usize,
}

/// Size in bytes, and time of modification in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) size: u64,
    pub(crate) mtime: (u64, u32),
}

pub(crate) struct Chunk {
    buffer: Arc<DmaBuffer>,
    /// Tells this chunk from an earlier one in its place.
    id: u64,
    valid: u32,
    busy: u32,
    /// Written here and not yet by the server; valid, and never evicted.
    dirty: u32,
    /// A READ that was begun ahead, and what it fills.
    pending: Option<Pending>,
    /// Since the memory's hand last came by.
    is_used: bool,
}

/// A READ under way into a chunk.
pub(crate) struct Pending {
    pub(crate) read: PendingRead,
    pub(crate) fill: Fill,
}

/// Pages of a chunk that a READ is to fill.
pub(crate) struct Fill {
    pub(crate) index: u64,
    pub(crate) buffer: Arc<DmaBuffer>,
    /// In bytes of the buffer; whole pages.
    pub(crate) range: Range<usize>,
    changes: u64,
}

/// What is kept at some place of a file.
pub(crate) enum Kept {
    /// So many bytes were copied, at least one.
    Copied(usize),
    /// A READ that was begun ahead is on its way.
    Pending(Pending),
    /// Another caller's READ is on its way.
    Busy,
    /// Nothing.
    Absent,
}

impl Fill {
    /// Where it begins in the file, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.index * CHUNK_LEN as u64 + self.range.start as u64
    }
}

impl Pages {
    /// Copies bytes from `offset` on, as far as they are kept and lie in one chunk.
    pub(crate) fn copy_out(&mut self, offset: u64, bytes: &mut [u8]) -> Kept {
        let (index, at) = place(offset);
        let Some(chunk) = self.chunks.get_mut(&index) else { return Kept::Absent };
        let page = at / PAGE_LEN;
        if chunk.busy >> page & 1 != 0 {
            return chunk.pending.take().map_or(Kept::Busy, Kept::Pending);
        }
        let pages = (chunk.valid >> page).trailing_ones() as usize;
        let len = bytes.len().min(((page + pages) * PAGE_LEN).min(chunk.buffer.len()).saturating_sub(at));
        if pages == 0 || len == 0 {
            return Kept::Absent;
        }
        chunk.is_used = true;
        chunk.buffer.read(at, &mut bytes[..len]);
        Kept::Copied(len)
    }

    /// Puts what a WRITE has taken into the pages that are kept, and into none else.
    pub(crate) fn written(&mut self, offset: u64, bytes: &[u8]) {
        self.changes += 1;
        let mut done = 0;
        while done < bytes.len() {
            let (index, at) = place(offset + done as u64);
            let len = (PAGE_LEN - at % PAGE_LEN).min(bytes.len() - done);
            if let Some(chunk) = self.chunks.get_mut(&index)
                && chunk.valid >> (at / PAGE_LEN) & 1 != 0
            {
                chunk.buffer.write(at, &bytes[done..done + len]);
            }
            done += len;
        }
    }

    /// Whether there is a chunk of at least `len` bytes at `index`.
    pub(crate) fn has_room(&self, index: u64, len: usize) -> bool {
        self.chunks.get(&index).is_some_and(|chunk| chunk.buffer.len() >= len)
    }

    /// Puts a chunk in place that takes over what the one has that was there; gives what is to be discarded.
    #[must_use]
    pub(crate) fn insert(&mut self, index: u64, id: u64, buffer: Arc<DmaBuffer>) -> Option<Chunk> {
        let mut chunk = Chunk { buffer, id, valid: 0, busy: 0, dirty: 0, pending: None, is_used: true };
        if let Some(earlier) = self.chunks.get(&index) {
            // A busy one is waited for, and another has been as quick as this one.
            if earlier.busy != 0 || earlier.len() >= chunk.len() {
                return Some(chunk);
            }
            chunk.buffer.copy_from(0, &earlier.buffer, 0, earlier.len());
            (chunk.valid, chunk.dirty) = (earlier.valid, earlier.dirty);
        }
        self.chunks.insert(index, chunk)
    }

    /// Marks up to `len_max` bytes busy from the page at `at` of a chunk on, as far as nothing is kept there. `None`
    /// where that is nothing.
    pub(crate) fn begin_fill(&mut self, index: u64, at: usize, end: usize, len_max: usize) -> Option<Fill> {
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
        let range = first * PAGE_LEN..(first + count) * PAGE_LEN;
        Some(Fill { index, buffer: Arc::clone(&chunk.buffer), range, changes })
    }

    /// Leaves a READ with its chunk, for whoever needs it first. Gives it back where the chunk is gone.
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

    /// Takes what a READ brought: `filled` bytes. They are kept where nothing has changed meanwhile.
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
            // What lies behind the end of the file reads as zeros once the file grows.
            chunk.buffer.fill(fill.range.start + filled, pages * PAGE_LEN - filled, 0);
            chunk.valid |= mask(first, pages);
        }
    }

    /// Whether the pages belong to `basis`; from now on they have to.
    pub(crate) fn settle(&mut self, basis: Basis) -> bool {
        self.basis.replace(basis).is_none_or(|earlier| earlier == basis)
    }

    /// Takes everything out that is not dirty.
    #[must_use]
    pub(crate) fn clear(&mut self) -> HashMap<u64, Chunk> {
        self.changes += 1;
        self.basis = None;
        let mut dropped = core::mem::take(&mut self.chunks);
        if self.dirty_pages > 0 {
            self.chunks = dropped.extract_if(|_, chunk| chunk.dirty != 0).collect();
            self.chunks.values_mut().for_each(|chunk| chunk.valid = chunk.dirty);
        }
        dropped
    }

    /// Takes the chunk out unless it is busy or was used since this was last asked: `Err` says whether it is still
    /// there.
    pub(crate) fn evict(&mut self, index: u64, id: u64) -> Result<Chunk, bool> {
        let chunk = self.chunks.get_mut(&index).filter(|chunk| chunk.id == id).ok_or(false)?;
        if core::mem::take(&mut chunk.is_used) || chunk.dirty != 0 || chunk.busy != 0 && chunk.pending.is_none() {
            return Err(true);
        }
        self.chunks.remove(&index).ok_or(false)
    }

    /// Whether the chunk is there.
    pub(crate) fn contains(&self, index: u64, id: u64) -> bool {
        self.chunks.get(&index).is_some_and(|chunk| chunk.id == id)
    }
}

impl Chunk {
    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// A READ that was begun ahead and nobody has waited for.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.pending.take()
    }
}

/// The chunk that an offset lies in, and where in it.
pub(crate) fn place(offset: u64) -> (u64, usize) {
    (offset / CHUNK_LEN as u64, (offset % CHUNK_LEN as u64) as usize)
}

/// `count` bits, at most 32, from `first` on.
fn mask(first: usize, count: usize) -> u32 {
    (((1_u64 << count) - 1) << first) as u32
}
