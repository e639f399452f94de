//! Reading through the page cache.
//!
//! Pages are valid while the file has the size and modification time under which they were read, which the cached
//! attributes show while they are valid; in [`CacheMode::Shared`], until the version table shows a change. If
//! attributes must not be cached, contents are not cached either: a change within one tick of the server's clock would
//! go unnoticed.

use alloc::sync::Arc;

use super::{Inode, OpenFile};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode,
        data::{Basis, CHUNK_LEN, Chunk, Fill, Kept, Pending, memory::Owner, place},
    },
    channel::Sink,
    memory::{Patience, Target},
    session::{Caller, PAGE_LEN},
};

impl<P: Platform> OpenFile<P> {
    /// Reads from cached pages, and caches what it fetches. Returns `None` if the contents must not be cached.
    pub(super) fn read_cached(
        &self,
        caller: &Caller<'_>,
        offset: u64,
        mut to: Target<'_>,
    ) -> Result<Option<usize>, Errno> {
        let Some(size) = self.inode().settled_size(caller, self)? else { return Ok(None) };
        let len = to.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            match self.read_piece(caller, offset + done as u64, to.part(done, len - done), size) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.read_ahead(caller, offset, done, size);
        Ok(Some(done))
    }

    /// Reads at least one byte, unless the file ends.
    fn read_piece(&self, caller: &Caller<'_>, offset: u64, mut to: Target<'_>, size: u64) -> Result<usize, Errno> {
        let inode = self.inode();
        match inode.copy_kept(offset, &mut to) {
            Kept::Copied(len) => return Ok(len),
            Kept::Fault => return Err(Errno::FAULT),
            // If it failed, the request below returns the error.
            Kept::Pending(pending) => _ = inode.finish(pending),
            Kept::Busy => return self.read_through(caller, offset, to),
            Kept::Absent => {
                if let Some(fill) = inode.begin_fill(offset, to.len(), size) {
                    self.fill(caller, &fill)?;
                }
            }
        }
        match inode.copy_kept(offset, &mut to) {
            Kept::Copied(len) => Ok(len),
            Kept::Fault => Err(Errno::FAULT),
            Kept::Pending(pending) => {
                let _ = inode.finish(pending);
                self.read_through(caller, offset, to)
            }
            // The file was changed, is shorter than its attributes say, or memory is short.
            Kept::Busy | Kept::Absent => self.read_through(caller, offset, to),
        }
    }

    /// Reads into pages that are marked busy.
    pub(super) fn fill(&self, caller: &Caller<'_>, fill: &Fill) -> Result<(), Errno> {
        let inode = self.inode();
        let sink = Sink::Buffer(&fill.buffer, fill.range.start, fill.range.len());
        let session = &inode.shared.session;
        let result = session.read(caller, inode.nodeid(), self.handle(), self.flags(), fill.offset(), sink);
        inode.pages.lock().end_fill(fill, *result.as_ref().unwrap_or(&0));
        result.map(|_| ())
    }

    /// Starts READs of what a sequential reader will need next: each time twice as much, up to the limit from INIT.
    fn read_ahead(&self, caller: &Caller<'_>, offset: u64, len: usize, size: u64) {
        let end = offset + len as u64;
        let max = u64::from(self.inode().shared.session.negotiated().max_readahead);
        let Some(ahead) = self.sequence.lock().next(offset, end, max) else { return };
        let mut at = ahead.start;
        while at < ahead.end.min(size) {
            let (index, within) = place(at);
            if !self.start_fill(caller, at, (CHUNK_LEN - within) as u64, size) {
                break;
            }
            at = (index + 1) * CHUNK_LEN as u64;
        }
    }

    /// Starts reading, up to the end of a chunk. Returns false if that is not possible now.
    fn start_fill(&self, caller: &Caller<'_>, offset: u64, len: u64, size: u64) -> bool {
        let inode = self.inode();
        let Some(fill) = inode.begin_fill(offset, len as usize, size) else { return true };
        // An interrupt is not meant for a request that nobody waits for.
        let caller = Caller { interrupt: None, ..*caller };
        let (nodeid, at, range) = (inode.nodeid(), fill.offset(), fill.range.clone());
        let buffer = Arc::clone(&fill.buffer);
        let session = &inode.shared.session;
        match session.read_start(&caller, nodeid, self.handle(), self.flags(), at, buffer, range) {
            Ok(read) => {
                let refused = inode.pages.lock().leave(Pending { read, fill });
                refused.is_none_or(|pending| inode.finish(pending).is_ok())
            }
            Err(_) => {
                inode.pages.lock().end_fill(&fill, 0);
                false
            }
        }
    }
}

impl<P: Platform> Inode<P> {
    /// Copies what is cached at `offset`. The caller's memory is made present between two attempts, with no lock held.
    fn copy_kept(&self, offset: u64, to: &mut Target<'_>) -> Kept {
        let mut patience = Patience::default();
        loop {
            let kept = self.pages.lock().copy_out(offset, to);
            match kept {
                Kept::Fault if patience.allows(to.fault_in()) => {}
                kept => return kept,
            }
        }
    }

    /// Returns the size, and drops pages that do not match what the server has now. Returns `None` if the contents must
    /// not be cached.
    fn settled_size(self: &Arc<Self>, caller: &Caller<'_>, file: &OpenFile<P>) -> Result<Option<u64>, Errno> {
        let basis = match self.kept_basis() {
            Some(basis) => basis,
            None => {
                self.ask_attributes(caller, Some(file.handle()))?;
                let Some(basis) = self.kept_basis() else { return Ok(None) };
                basis
            }
        };
        let mut pages = self.pages.lock();
        let dirty_size = pages.dirty_size();
        if dirty_size.is_some() {
            return Ok(dirty_size);
        }
        let are_valid = match self.shared.options.mode {
            CacheMode::Auto => pages.settle(basis),
            CacheMode::Shared => pages.are_valid(&self.judge()),
            CacheMode::None | CacheMode::Always => true,
        };
        if !are_valid {
            let dropped = pages.clear();
            pages.settle(basis);
            drop(pages);
            dropped.into_values().for_each(|chunk| self.discard(chunk));
        }
        Ok(Some(basis.size))
    }

    /// Returns the size and modification time that pages must belong to, while the attributes are valid.
    fn kept_basis(&self) -> Option<Basis> {
        let attributes = self.attributes.lock();
        let attr = attributes.get(&self.judge())?;
        Some(Basis { size: attr.size.get(), mtime: (attr.mtime.get(), attr.mtimensec.get()) })
    }

    /// Drops the cached contents, and the known size of a mapped file.
    pub(crate) fn drop_data(&self) {
        self.mapped.forget();
        let dropped = self.pages.lock().clear();
        dropped.into_values().for_each(|chunk| self.discard(chunk));
    }

    /// Frees the memory of a chunk that was removed; waits for a READ into it.
    fn discard(&self, mut chunk: Chunk) {
        self.shared.memory.release(chunk.len());
        if let Some(Pending { read, .. }) = chunk.take_pending() {
            // Nobody needs the result.
            let _ = self.shared.session.read_finish(read);
        }
    }

    /// Waits for a READ that was started ahead, and stores the result.
    fn finish(&self, pending: Pending) -> Result<(), Errno> {
        let result = self.shared.session.read_finish(pending.read);
        self.pages.lock().end_fill(&pending.fill, *result.as_ref().unwrap_or(&0));
        result.map(|_| ())
    }

    /// Waits for every READ that was started ahead.
    pub(super) fn finish_all(&self) {
        loop {
            let pending = self.pages.lock().take_pending();
            let Some(pending) = pending else { return };
            // A reader of these pages will see the error again.
            let _ = self.finish(pending);
        }
    }

    /// Marks pages busy starting with the one at `offset`: as many as `len` bytes touch, within one chunk and the file.
    /// Returns `None` if there is nothing to fill, or no memory.
    pub(super) fn begin_fill(self: &Arc<Self>, offset: u64, len: usize, size: u64) -> Option<Fill> {
        let (index, at) = place(offset);
        let rest = usize::try_from(size - index * CHUNK_LEN as u64).unwrap_or(usize::MAX).min(CHUNK_LEN);
        let end = at.saturating_add(len).min(rest);
        let chunk_len = rest.next_multiple_of(PAGE_LEN);
        if !self.pages.lock().has_room(index, chunk_len) {
            self.add_chunk(index, chunk_len)?;
        }
        let len_max = self.shared.session.negotiated().data_len_max;
        let validity = self.shared.validity(self.shared.asked_at(), 0, 0);
        self.pages.lock().begin_fill(index, at, end, len_max, validity)
    }

    /// Inserts an empty chunk, replacing an existing one.
    pub(super) fn add_chunk(self: &Arc<Self>, index: u64, len: usize) -> Option<()> {
        let memory = &self.shared.memory;
        if !memory.reserve(len) {
            return None;
        }
        let Ok(buffer) = self.shared.session.channel().buffer(len) else {
            memory.release(len);
            return None;
        };
        let id = memory.new_id();
        let displaced = self.pages.lock().insert(index, id, Arc::new(buffer));
        if let Some(chunk) = displaced {
            self.discard(chunk);
        }
        memory.list(self, index, id);
        Some(())
    }
}

impl<P: Platform> Owner for Inode<P> {
    fn has_chunk(&self, index: u64, id: u64) -> bool {
        self.pages.lock().contains(index, id)
    }

    fn evict_chunk(&self, index: u64, id: u64) -> Result<(), bool> {
        // The lock is released first: discarding may wait for a READ.
        let evicted = self.pages.lock().evict(index, id);
        evicted.map(|chunk| self.discard(chunk))
    }
}
