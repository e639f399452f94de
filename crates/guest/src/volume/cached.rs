//! Reading through the pages that are kept.
//!
//! Pages hold while size and time of modification are those that they were read under, as the attributes tell while
//! these hold. Where attributes are not to be kept, nothing of the contents is: a change within one tick of the
//! server's clock would not be seen.

use alloc::sync::Arc;

use super::{Inode, OpenFile};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode,
        data::{Basis, CHUNK_LEN, Chunk, Fill, Kept, Pending, memory::Owner, place},
    },
    channel::Sink,
    session::{Caller, PAGE_LEN},
};

impl<P: Platform> OpenFile<P> {
    /// Reads from kept pages, and keeps what has to be asked for. `None` where nothing may be kept.
    pub(super) fn read_cached(
        &self,
        caller: &Caller<'_>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let Some(size) = self.inode().settled_size(caller, self)? else { return Ok(None) };
        let len = bytes.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let bytes = &mut bytes[..len];
        let mut done = 0;
        while done < len {
            match self.read_piece(caller, offset + done as u64, &mut bytes[done..], size) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.read_ahead(caller, offset, done, size);
        Ok(Some(done))
    }

    /// Reads at least a byte, unless the file ends.
    fn read_piece(&self, caller: &Caller<'_>, offset: u64, bytes: &mut [u8], size: u64) -> Result<usize, Errno> {
        let inode = self.inode();
        let kept = inode.pages.lock().copy_out(offset, bytes);
        match kept {
            Kept::Copied(len) => return Ok(len),
            // Where it failed, what is asked for below says why.
            Kept::Pending(pending) => _ = inode.finish(pending),
            Kept::Busy => return self.read_through(caller, offset, bytes),
            Kept::Absent => {
                if let Some(fill) = inode.begin_fill(offset, bytes.len(), size) {
                    self.fill(caller, &fill)?;
                }
            }
        }
        let kept = inode.pages.lock().copy_out(offset, bytes);
        match kept {
            Kept::Copied(len) => Ok(len),
            Kept::Pending(pending) => {
                let _ = inode.finish(pending);
                self.read_through(caller, offset, bytes)
            }
            // Changed meanwhile, or shorter than its attributes say, or out of memory.
            Kept::Busy | Kept::Absent => self.read_through(caller, offset, bytes),
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

    /// Begins READs of what a sequential reader will want next: each time twice as much, up to what INIT settled.
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

    /// Begins to read at most to the end of a chunk. False where that cannot be done now.
    fn start_fill(&self, caller: &Caller<'_>, offset: u64, len: u64, size: u64) -> bool {
        let inode = self.inode();
        let Some(fill) = inode.begin_fill(offset, len as usize, size) else { return true };
        // What nobody waits for is not what an interrupt is meant for.
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
    /// The size, with pages dropped that do not belong to what the server has now. `None` where nothing may be kept.
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
        if self.shared.options.mode == CacheMode::Auto && !pages.settle(basis) {
            let dropped = pages.clear();
            pages.settle(basis);
            drop(pages);
            dropped.into_values().for_each(|chunk| self.discard(chunk));
        }
        Ok(Some(basis.size))
    }

    /// What pages have to belong to, while the attributes hold.
    fn kept_basis(&self) -> Option<Basis> {
        let attributes = self.attributes.lock();
        let attr = attributes.get(|| self.shared.now_ns())?;
        Some(Basis { size: attr.size.get(), mtime: (attr.mtime.get(), attr.mtimensec.get()) })
    }

    /// Drops what is kept of the contents, and what is known of the size of a file that is mapped.
    pub(crate) fn drop_data(&self) {
        self.mapped.forget();
        let dropped = self.pages.lock().clear();
        dropped.into_values().for_each(|chunk| self.discard(chunk));
    }

    /// Gives the memory of a chunk that was taken out back; waits for a READ into it.
    fn discard(&self, mut chunk: Chunk) {
        self.shared.memory.release(chunk.len());
        if let Some(Pending { read, .. }) = chunk.take_pending() {
            // Nobody wants it any more.
            let _ = self.shared.session.read_finish(read);
        }
    }

    /// Waits for a READ that was begun ahead, and takes what it brings.
    fn finish(&self, pending: Pending) -> Result<(), Errno> {
        let result = self.shared.session.read_finish(pending.read);
        self.pages.lock().end_fill(&pending.fill, *result.as_ref().unwrap_or(&0));
        result.map(|_| ())
    }

    /// Waits for every READ that was begun ahead.
    pub(super) fn finish_all(&self) {
        loop {
            let pending = self.pages.lock().take_pending();
            let Some(pending) = pending else { return };
            // An error is met again by who reads there.
            let _ = self.finish(pending);
        }
    }

    /// Marks pages busy from the one at `offset` on: as many as `len` bytes touch, in one chunk, within the file.
    /// `None` where there is nothing to fill, or no memory.
    pub(super) fn begin_fill(self: &Arc<Self>, offset: u64, len: usize, size: u64) -> Option<Fill> {
        let (index, at) = place(offset);
        let rest = usize::try_from(size - index * CHUNK_LEN as u64).unwrap_or(usize::MAX).min(CHUNK_LEN);
        let end = at.saturating_add(len).min(rest);
        let chunk_len = rest.next_multiple_of(PAGE_LEN);
        if !self.pages.lock().has_room(index, chunk_len) {
            self.add_chunk(index, chunk_len)?;
        }
        let len_max = self.shared.session.negotiated().data_len_max;
        self.pages.lock().begin_fill(index, at, end, len_max)
    }

    /// Puts an empty chunk in place of what is there.
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
