//! An open directory: entries in the host's order, starting at any cookie that the host has returned.
//!
//! Between two requests a stream keeps only its position. Entries read ahead are kept in [`ReadAhead`], which may drop
//! them: the stream then returns to its position and reads them again.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use rustix::fs::{RawDir, SeekFrom};
use transom_wire::NodeId;

use super::{
    dir_batch::{Batch, Entry},
    hidden::Listing,
    read_ahead::{ReadAhead, StreamId},
};
use crate::{Errno, server::BlockingMode};

/// Bytes of entries that the host returns in one call, about 800 entries.
pub(super) const BATCH_LEN: usize = 32 << 10;

/// An open directory.
#[derive(Debug)]
pub(super) struct DirStream {
    fd: OwnedFd,
    pub(super) nodeid: NodeId,
    pub(super) listing: Listing,
    id: StreamId,
    read_ahead: Arc<ReadAhead>,
    /// Held while a batch is read: two requests on one stream take turns, as on the host.
    position: Mutex<Position>,
}

/// The position of a stream, in the host's cookies.
#[derive(Debug, Default)]
struct Position {
    /// After the last entry that was returned.
    next: u64,
    /// Where the host continues: after the last entry that was read ahead.
    host: u64,
}

/// Exclusive access to a stream. Keeps the entries read ahead when it is dropped.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    stream: &'a DirStream,
    position: MutexGuard<'a, Position>,
    batch: Batch,
}

impl DirStream {
    pub(super) fn new(fd: OwnedFd, nodeid: NodeId, listing: Listing, read_ahead: &Arc<ReadAhead>) -> Self {
        Self {
            fd,
            nodeid,
            listing,
            id: read_ahead.new_stream(),
            read_ahead: Arc::clone(read_ahead),
            position: Mutex::default(),
        }
    }

    /// Returns whether this is the shared directory, whose parent the guest must not learn of.
    pub(super) fn is_root(&self) -> bool {
        self.nodeid == NodeId::ROOT
    }

    /// Starts reading at `offset`, which is 0 or the `off` of an entry.
    ///
    /// Waits while another request reads. Errors: EAGAIN instead, under [`BlockingMode::MustNotBlock`].
    pub(super) fn reader(&self, offset: u64, blocking: BlockingMode) -> Result<Reader<'_>, Errno> {
        let mut position = match (self.position.try_lock(), blocking) {
            (Ok(position), _) => position,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), BlockingMode::MustNotBlock) => return Err(Errno::AGAIN),
            (Err(TryLockError::WouldBlock), BlockingMode::MayBlock) => {
                self.position.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let kept = self.read_ahead.take(self.id);
        // A read from the beginning starts anew: what was read ahead may be outdated.
        let batch = if offset == 0 || offset != position.next { Batch::default() } else { kept.unwrap_or_default() };
        if batch.is_empty() && (offset == 0 || offset != position.host) {
            let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?.cast_unsigned();
            rustix::fs::seek(&self.fd, SeekFrom::Start(offset))?;
            position.host = offset;
        }
        position.next = offset;
        Ok(Reader { stream: self, position, batch })
    }
}

impl AsFd for DirStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DirStream {
    fn drop(&mut self) {
        self.read_ahead.take(self.id);
    }
}

impl Reader<'_> {
    /// Returns the next entry without consuming it: see [`Reader::advance`]. Returns `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<Entry<'_>>, Errno> {
        if self.batch.is_empty() {
            self.read_batch()?;
        }
        Ok(self.batch.first())
    }

    /// Returns whether the next entry has to be read from the host.
    pub(super) fn is_at_edge(&self) -> bool {
        self.batch.is_empty()
    }

    /// Consumes the entry that [`Reader::peek`] returned.
    pub(super) fn advance(&mut self) {
        if let Some(off) = self.batch.remove_first() {
            self.position.next = off;
        }
    }

    fn read_batch(&mut self) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); BATCH_LEN];
        let mut entries = RawDir::new(&self.stream.fd, &mut buffer);
        let mut batch = Batch::with_room(BATCH_LEN);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The directory was removed while it was open, so it is empty.
                Err(Errno::NOENT) => return Ok(()),
                entry => entry?,
            };
            self.position.host = entry.next_entry_cookie();
            batch.push(&entry);
            if entries.is_buffer_empty() {
                break;
            }
        }
        self.batch = batch;
        Ok(())
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.stream.read_ahead.keep(self.stream.id, std::mem::take(&mut self.batch));
        }
    }
}
