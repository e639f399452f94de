//! Pages that were written locally and have not reached the server yet.

use alloc::sync::Arc;

use super::{CHUNK_LEN, Pages, mask, place};
use crate::{dma::DmaBuffer, memory::Origin, session::PAGE_LEN};

/// What became of bytes for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// This many were copied, at least one: fewer than there were if the caller's memory has to be made present.
    Copied(usize),
    /// None was copied, because the caller's memory has to be made present.
    Fault,
    /// There is no chunk, or the page has to be read first.
    Absent,
}

/// Neighbouring pages to write back, already marked clean.
pub(crate) struct DirtyRun {
    pub(crate) buffer: Arc<DmaBuffer>,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// Offset in the buffer, in bytes.
    pub(crate) at: usize,
    /// Length in bytes, cut at the end of the file.
    pub(crate) len: usize,
}

impl Pages {
    /// Writes bytes into one page of a file of `size` bytes, and marks it dirty.
    pub(crate) fn put(&mut self, offset: u64, from: &mut Origin<'_>, size: u64) -> Put {
        let (index, at) = place(offset);
        let (page, within) = (at / PAGE_LEN, at % PAGE_LEN);
        let Some(chunk) = self.chunks.get_mut(&index) else { return Put::Absent };
        if at + from.len() > chunk.len() || chunk.busy >> page & 1 != 0 {
            return Put::Absent;
        }
        let is_valid = chunk.valid >> page & 1 != 0;
        let is_beyond = offset - within as u64 >= size;
        if !is_valid {
            let end = offset + from.len() as u64;
            let is_covered = within == 0 && (from.len() == PAGE_LEN || end >= size);
            if !is_beyond && !is_covered {
                return Put::Absent;
            }
            chunk.buffer.fill(page * PAGE_LEN, PAGE_LEN, 0);
        }
        let count = from.take(chunk.buffer.slice_mut(at..at + from.len()));
        if count == 0 {
            return Put::Fault;
        }
        if count < from.len() && !is_valid && !is_beyond {
            // The rest of the page would be zeros instead of what the file has there.
            return Put::Absent;
        }
        self.changes += 1;
        self.dirty_pages += usize::from(chunk.dirty >> page & 1 == 0);
        chunk.valid |= mask(page, 1);
        chunk.dirty |= mask(page, 1);
        chunk.is_used = true;
        self.dirty_size = Some(size.max(offset + count as u64));
        Put::Copied(count)
    }

    /// Returns the size of the file while the server's size is older.
    pub(crate) fn dirty_size(&self) -> Option<u64> {
        self.dirty_size
    }

    /// Returns the number of dirty pages.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }

    /// Takes the next run of whole pages, at most `len_max` bytes. The caller excludes writers until the run is
    /// written.
    pub(crate) fn take_dirty(&mut self, len_max: usize) -> Option<DirtyRun> {
        let size = self.dirty_size?;
        let found = self.chunks.iter_mut().find(|(_, chunk)| chunk.dirty != 0);
        let Some((&index, chunk)) = found else {
            (self.dirty_size, self.dirty_pages) = (None, 0);
            // From here on the server decides the modification time.
            self.basis = None;
            return None;
        };
        let first = chunk.dirty.trailing_zeros() as usize;
        let count = ((chunk.dirty >> first).trailing_ones() as usize).min(len_max / PAGE_LEN).max(1);
        chunk.dirty &= !mask(first, count);
        self.dirty_pages = self.dirty_pages.saturating_sub(count);
        let (at, offset) = (first * PAGE_LEN, index * CHUNK_LEN as u64 + (first * PAGE_LEN) as u64);
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        Some(DirtyRun { buffer: Arc::clone(&chunk.buffer), offset, at, len: (count * PAGE_LEN).min(rest) })
    }

    /// Records that a run could not be written: its contents are not what the server has.
    pub(crate) fn lose(&mut self, run: &DirtyRun) {
        let (index, at) = place(run.offset);
        self.changes += 1;
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.valid &= !mask(at / PAGE_LEN, run.len.div_ceil(PAGE_LEN));
        }
    }
}
