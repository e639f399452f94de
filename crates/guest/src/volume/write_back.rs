//! Write-back: writing to cached pages, and from there to the server.
//!
//! Used if INIT negotiated WRITEBACK_CACHE, except in [`CacheMode::Shared`]. Dirty pages are written by FSYNC, on
//! close, before the server uses the contents in any way, when too many are dirty, when they have waited for long
//! ([`ageing`](super::ageing)), and by [`Volume::write_back`]. An error is kept with the inode and reported once for
//! each open file, by its next fsync or close. Write-back holds the inode's `size_lock`. A dirty inode has at least one
//! writer's handle: the last of them writes back before it is released.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use transom_wire::{
    Handle,
    linux::O_DSYNC,
    ops::{init::InitFlags, write::WriteFlags},
};

use super::{Inode, OpenFile, Shared, Volume};
use crate::{
    Errno, Platform,
    cache::{
        CacheMode,
        data::{CHUNK_LEN, DirtyRun, Put, place},
    },
    channel::Source,
    memory::Origin,
    session::{Caller, PAGE_LEN},
};

impl<P: Platform> Volume<P> {
    /// Writes back what has been dirty for `age_ns` or longer, 0 for all. A platform without threads calls it from time
    /// to time.
    ///
    /// Errors are kept for the next fsync or close of each open file.
    pub fn write_back(&self, age_ns: u64) {
        self.shared.write_back(age_ns);
    }

    /// Returns the number of bytes that wait to be written.
    pub fn dirty_bytes(&self) -> usize {
        self.shared.memory.dirty_bytes()
    }
}

impl<P: Platform> Shared<P> {
    pub(super) fn write_back(&self, age_ns: u64) {
        let _alone = self.memory.write_backs.lock();
        let before_ns = self.now_ns().saturating_sub(age_ns);
        while let Some((inode, _)) = self.memory.oldest_dirty(before_ns) {
            inode.write_dirty();
        }
    }

    /// Reports the last error of a delayed write once, for operations on the whole volume.
    pub(super) fn take_write_error(&self) -> Result<(), Errno> {
        self.write_error.lock().take().map_or(Ok(()), Err)
    }
}

/// Errors from writing an inode's pages, to be reported once for each open file.
#[derive(Debug, Default)]
pub(super) struct WriteErrors {
    last: Option<Errno>,
    count: u64,
    is_told: bool,
}

impl WriteErrors {
    fn add(&mut self, error: Errno) {
        (self.last, self.is_told) = (Some(error), false);
        self.count += 1;
    }

    /// Returns the count that a newly opened file has seen: it also reports an error that no file has reported yet.
    pub(super) fn seen(&self) -> u64 {
        if self.is_told { self.count } else { self.count.saturating_sub(1) }
    }
}

impl<P: Platform> OpenFile<P> {
    /// Reports the error of an earlier write, once for each open file.
    pub(super) fn take_error(&self) -> Result<(), Errno> {
        let mut errors = self.inode().write_errors.lock();
        if self.errors_seen.swap(errors.count, Ordering::Relaxed) == errors.count {
            return Ok(());
        }
        errors.is_told = true;
        errors.last.map_or(Ok(()), Err)
    }

    /// Returns whether writes may be delayed.
    pub(super) fn is_written_back(&self) -> bool {
        self.is_cached()
            && self.flags() & O_DSYNC == 0
            // Others would not see what waits here.
            && self.inode().shared.options.mode != CacheMode::Shared
            && self.inode().shared.session.negotiated().flags.contains(InitFlags::WRITEBACK_CACHE)
    }

    /// Writes bytes to pages, or to the server if there are no pages for them. The caller holds `size_lock`.
    pub(super) fn write_kept(&self, caller: &Caller<'_>, offset: u64, mut from: Origin<'_>) -> Result<usize, Errno> {
        let inode = self.inode();
        let size = inode.local_size(caller, self)?;
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let len = (PAGE_LEN - at as usize % PAGE_LEN).min(from.len() - done);
            match self.put(caller, at, from.part(done, len), size.max(at)) {
                Put::Copied(count) => {
                    done += count;
                    if count < len {
                        break;
                    }
                }
                Put::Fault if done == 0 => return Err(Errno::FAULT),
                Put::Fault => break,
                Put::Absent => {
                    inode.write_dirty_locked();
                    return match self.write_through(caller, at, from.rest(done)) {
                        Err(_) if done > 0 => Ok(done),
                        rest => rest.map(|rest| done + rest),
                    };
                }
            }
        }
        inode.relieve();
        Ok(done)
    }

    /// Writes bytes to one page.
    fn put(&self, caller: &Caller<'_>, offset: u64, mut from: Origin<'_>, size: u64) -> Put {
        let inode = self.inode();
        let put = inode.put(offset, &mut from, size);
        if put != Put::Absent {
            return put;
        }
        let (index, at) = place(offset);
        let file_part = usize::try_from(size.saturating_sub(index * CHUNK_LEN as u64)).unwrap_or(usize::MAX);
        let needed = file_part.min(CHUNK_LEN).max(at + from.len()).next_power_of_two().clamp(PAGE_LEN, CHUNK_LEN);
        let has_room = inode.pages.lock().has_room(index, at + from.len());
        if !has_room && inode.add_chunk(index, needed).is_none() {
            return Put::Absent;
        }
        let put = inode.put(offset, &mut from, size);
        if put != Put::Absent || offset - at as u64 % PAGE_LEN as u64 >= size {
            return put;
        }
        let fill = inode.begin_fill(offset - offset % PAGE_LEN as u64, 1, size);
        match fill {
            Some(fill) if self.fill(caller, &fill).is_ok() => inode.put(offset, &mut from, size),
            _ => Put::Absent,
        }
    }

    /// Records that the file can be written through this handle.
    pub(super) fn enlist(&self) {
        if self.is_writable() && self.is_written_back() {
            self.inode().writers.lock().push((self.handle(), self.flags()));
        }
    }

    /// Writes back, and removes the handle from the writers: to be called before the handle is released.
    pub(super) fn retire(&self) {
        if !self.is_writable() {
            return;
        }
        let _size = self.inode().size_lock.lock();
        self.inode().write_dirty_locked();
        self.inode().writers.lock().retain(|(fh, _)| *fh != self.handle());
    }
}

impl<P: Platform> Inode<P> {
    /// Writes back. Takes `size_lock` if there is something to write.
    ///
    /// When it returns, data that another thread was writing back has reached the server too.
    pub(crate) fn write_dirty(&self) {
        if self.pages.lock().dirty_size().is_some() {
            let _size = self.size_lock.lock();
            self.write_dirty_locked();
        }
    }

    /// Writes back; the caller holds `size_lock`. An error is kept for [`OpenFile::take_error`].
    pub(super) fn write_dirty_locked(&self) {
        let Some((fh, flags)) = self.writers.lock().first().copied() else { return };
        let len_max = self.shared.session.negotiated().max_write;
        let mut has_written = false;
        loop {
            let mut pages = self.pages.lock();
            let before = pages.dirty_pages();
            let run = pages.take_dirty(len_max);
            self.shared.memory.count_dirty(before * PAGE_LEN, pages.dirty_pages() * PAGE_LEN);
            drop(pages);
            let Some(run) = run else { break };
            if !has_written {
                self.changed();
                has_written = true;
            }
            if let Err(error) = self.write_run(fh, flags, &run) {
                self.pages.lock().lose(&run);
                self.write_errors.lock().add(error);
                *self.shared.write_error.lock() = Some(error);
            }
            // Before the last run is completed, because the server decides the size from then on.
            self.changed();
        }
        if has_written {
            self.shared.memory.unlist_dirty(self);
        }
    }

    fn write_run(&self, fh: Handle, flags: u32, run: &DirtyRun) -> Result<(), Errno> {
        let (session, caller) = (&self.shared.session, Caller::default());
        let mut done = 0;
        while done < run.len {
            let source = Source::Buffer(&run.buffer, run.at + done, run.len - done);
            let at = run.offset + done as u64;
            done += session.write(&caller, self.nodeid(), fh, flags, WriteFlags::CACHE, at, source)?;
        }
        Ok(())
    }

    fn put(self: &Arc<Self>, offset: u64, from: &mut Origin<'_>, size: u64) -> Put {
        let mut pages = self.pages.lock();
        let before = pages.dirty_pages();
        let size = pages.dirty_size().map_or(size, |dirty_size| dirty_size.max(size));
        let put = pages.put(offset, from, size);
        let after = pages.dirty_pages();
        drop(pages);
        self.shared.memory.count_dirty(before * PAGE_LEN, after * PAGE_LEN);
        if before == 0 && after > 0 {
            self.shared.memory.list_dirty(self, self.shared.now_ns());
        }
        put
    }

    /// Writes back the oldest data while too much is dirty. The caller holds `size_lock` of this inode, which is
    /// written last.
    fn relieve(&self) {
        let memory = &self.shared.memory;
        let dirty_max_bytes = self.shared.options.dirty_max_bytes;
        // Its holder may wait for the lock of this inode.
        let alone = memory.write_backs.try_lock();
        while alone.is_some() && memory.dirty_bytes() > dirty_max_bytes {
            let Some((oldest, since_ns)) = memory.oldest_dirty(u64::MAX) else { break };
            // Two threads that wait for each other's lock would wait forever.
            let Some(_size) = oldest.size_lock.try_lock() else {
                memory.list_dirty(&oldest, since_ns);
                break;
            };
            oldest.write_dirty_locked();
        }
        if memory.dirty_bytes() > dirty_max_bytes {
            self.write_dirty_locked();
        }
    }

    /// Returns the size of the file, including dirty data. The caller holds `size_lock`.
    pub(super) fn local_size(&self, caller: &Caller<'_>, file: &OpenFile<P>) -> Result<u64, Errno> {
        let dirty_size = self.pages.lock().dirty_size();
        match dirty_size {
            Some(size) => Ok(size),
            None => self.getattr_without_times(caller, Some(file.handle())).map(|attr| attr.size.get()),
        }
    }
}
