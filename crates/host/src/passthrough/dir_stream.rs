//! An open directory: entries in the host's order, starting at any cookie that the host has returned.
//!
//! Between two requests a stream keeps only its position. Entries read ahead are kept in [`ReadAhead`], which may drop
//! them: the stream then returns to its position and reads them again.

use std::{
    mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use rustix::fs::SeekFrom;
use transom_wire::NodeId;

use super::{
    dir_batch::{Batch, Entry, Step},
    hidden::Listing,
    read_ahead::{ReadAhead, StreamId},
};
use crate::{Errno, server::BlockingMode};

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
    /// The host continues elsewhere than at `next`: entries were read ahead, or nothing is known of it.
    is_host_elsewhere: bool,
    /// Entries read ahead were left to [`ReadAhead`], which may still have them.
    has_kept: bool,
    /// What is known of the host's calls.
    calls: Calls,
}

/// What the calls so far have shown.
#[derive(Debug, Default, Clone, Copy)]
enum Calls {
    /// No call was made, or the last one filled its buffer.
    #[default]
    More,
    /// The last one left room for another entry: most likely these were the last entries.
    LeftRoom,
    /// The host leaves room and has more entries all the same.
    StopEarly,
}

/// Exclusive access to a stream. Keeps the entries read ahead when it is dropped.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    stream: &'a DirStream,
    position: MutexGuard<'a, Position>,
    batch: Batch,
}

impl DirStream {
    /// Creates a stream of a directory that was opened just now and is at its beginning.
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

    /// Lets the next read position the directory, which somebody else has had open.
    pub(super) fn used_before(self) -> Self {
        self.lock().is_host_elsewhere = true;
        self
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
            (Err(TryLockError::WouldBlock), BlockingMode::MayBlock) => self.lock(),
        };
        let kept = if mem::take(&mut position.has_kept) { self.read_ahead.take(self.id) } else { None };
        // A read from the beginning starts anew: what was read ahead may be outdated.
        let starts_anew = offset == 0 && position.next != 0;
        let batch = if offset == 0 || offset != position.next { Batch::default() } else { kept.unwrap_or_default() };
        if batch.is_empty() && (starts_anew || position.is_host_elsewhere || offset != position.next) {
            let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?.cast_unsigned();
            rustix::fs::seek(&self.fd, SeekFrom::Start(offset))?;
            position.is_host_elsewhere = false;
            position.calls = Calls::More;
        }
        position.next = offset;
        Ok(Reader { stream: self, position, batch })
    }

    fn lock(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for DirStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DirStream {
    fn drop(&mut self) {
        if self.lock().has_kept {
            self.read_ahead.take(self.id);
        }
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

    /// Returns whether the host has most likely no further entries, so that a request which has some need not ask. The
    /// next request does, since only a reply without entries is the end for the guest.
    pub(super) fn is_probably_over(&self) -> bool {
        self.batch.is_empty() && matches!(self.position.calls, Calls::LeftRoom)
    }

    /// Consumes the entry that [`Reader::peek`] returned, from which `step` is.
    pub(super) fn advance(&mut self, step: Step) {
        self.batch.remove_first(step);
        self.position.next = step.off;
        self.position.is_host_elsewhere = !self.batch.is_empty();
    }

    fn read_batch(&mut self) -> Result<(), Errno> {
        // Also after an error: a file system may have gone on.
        self.position.is_host_elsewhere = true;
        self.batch = match Batch::read(&self.stream.fd) {
            // The directory was removed while it was open, so it is empty.
            Err(Errno::NOENT) => Batch::default(),
            batch => batch?,
        };
        let is_empty = self.batch.is_empty();
        // A directory without entries is read anew from its beginning the next time.
        self.position.is_host_elsewhere = !is_empty || self.position.next == 0;
        self.position.calls = match self.position.calls {
            Calls::LeftRoom if !is_empty => Calls::StopEarly,
            Calls::More if self.batch.had_room() => Calls::LeftRoom,
            calls => calls,
        };
        Ok(())
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.stream.read_ahead.keep(self.stream.id, mem::take(&mut self.batch));
            self.position.has_kept = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// Returns the number of entries from `offset` on, and the last one's position.
    fn rest(stream: &DirStream, offset: u64) -> (usize, u64) {
        let (mut count, mut last) = (0, offset);
        let mut reader = stream.reader(offset, BlockingMode::MayBlock).unwrap();
        while let Some(step) = reader.peek().unwrap().map(|entry| entry.step()) {
            (count, last) = (count + 1, step.off);
            reader.advance(step);
        }
        (count, last)
    }

    fn open(dir: &std::path::Path) -> OwnedFd {
        rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_directory_that_somebody_has_read_before_is_read_from_the_given_position() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let new = |fd| DirStream::new(fd, NodeId(2), Listing::default(), &Arc::default());
        let fd = open(dir.path());
        let used = rustix::io::fcntl_dupfd_cloexec(&fd, 0).unwrap();
        assert_eq!(rest(&new(fd), 0).0, 3);
        assert_eq!(rest(&new(used).used_before(), 0).0, 3);
    }

    #[test]
    fn a_stream_that_has_ended_sees_what_is_new_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let stream = DirStream::new(open(dir.path()), NodeId(2), Listing::default(), &Arc::default());
        let (count, end) = rest(&stream, 0);
        assert_eq!((count, rest(&stream, end).0), (2, 0));
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(rest(&stream, 0).0, 3);
    }

    #[test]
    fn a_request_that_has_entries_does_not_ask_on_after_the_last_ones() {
        let dir = tempfile::tempdir().unwrap();
        let stream = DirStream::new(open(dir.path()), NodeId(2), Listing::default(), &Arc::default());
        let mut reader = stream.reader(0, BlockingMode::MayBlock).unwrap();
        assert!(!reader.is_probably_over(), "nothing was read");
        while let Some(step) = reader.peek().unwrap().map(|entry| entry.step()) {
            reader.advance(step);
            if reader.is_at_edge() {
                assert!(reader.is_probably_over(), "the call had room for more than the dots");
                return;
            }
        }
        panic!("a batch has an end");
    }
}
