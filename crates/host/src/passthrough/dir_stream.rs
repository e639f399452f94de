//! An open directory: entries in the host's order, from any cookie that the host has given.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
};

use rustix::fs::{FileType, RawDir, SeekFrom};

use crate::{Errno, server::Patience};

/// Bytes that the host fills with entries in one call: some 800 of them.
const BATCH_LEN: usize = 32 << 10;

/// An open directory and the entries that were read ahead.
#[derive(Debug)]
pub(super) struct DirStream {
    fd: OwnedFd,
    /// Held over the reading of a batch: two requests on one stream take turns, as they do on the host.
    ahead: Mutex<Ahead>,
}

/// What was read and not yet handed out.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    entries: VecDeque<Entry>,
    /// The cookie behind the entry that was handed out last.
    position: u64,
}

/// One entry as the host tells it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) ino: u64,
    /// Where the stream goes on behind it.
    pub(super) off: u64,
    /// As in `d_type`.
    pub(super) type_: u8,
    pub(super) name: Box<[u8]>,
}

/// The right to read from a stream.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    fd: BorrowedFd<'a>,
    ahead: MutexGuard<'a, Ahead>,
}

impl DirStream {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, ahead: Mutex::default() }
    }

    /// Reads on from `offset`, which is 0 or the `off` of an entry.
    ///
    /// Waits while another reads. Errors: EAGAIN instead, under [`Patience::Try`].
    pub(super) fn reader(&self, offset: u64, patience: Patience) -> Result<Reader<'_>, Errno> {
        let mut ahead = match (self.ahead.try_lock(), patience) {
            (Ok(ahead), _) => ahead,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), Patience::Try) => return Err(Errno::AGAIN),
            (Err(TryLockError::WouldBlock), Patience::MayBlock) => {
                self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        // From the beginning means anew: what was read ahead may be long ago.
        if offset == 0 || offset != ahead.position {
            ahead.entries = VecDeque::new();
            let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
            rustix::fs::seek(&self.fd, SeekFrom::Start(offset.cast_unsigned()))?;
            ahead.position = offset.cast_unsigned();
        }
        Ok(Reader { fd: self.fd.as_fd(), ahead })
    }
}

impl AsFd for DirStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Reader<'_> {
    /// The next entry, which stays the next one until [`Reader::advance`]; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<&Entry>, Errno> {
        if self.ahead.entries.is_empty() {
            self.read_batch()?;
        }
        Ok(self.ahead.entries.front())
    }

    /// True where the next entry is to be asked of the host.
    pub(super) fn is_at_edge(&self) -> bool {
        self.ahead.entries.is_empty()
    }

    /// Goes on behind the entry that [`Reader::peek`] answered.
    pub(super) fn advance(&mut self) {
        if let Some(entry) = self.ahead.entries.pop_front() {
            self.ahead.position = entry.off;
        }
    }

    fn read_batch(&mut self) -> Result<(), Errno> {
        let mut buffer = Vec::with_capacity(BATCH_LEN);
        let mut batch = RawDir::new(self.fd, buffer.spare_capacity_mut());
        while let Some(entry) = batch.next() {
            let entry = match entry {
                // Removed while it was open: there is nothing in it.
                Err(Errno::NOENT) => return Ok(()),
                entry => entry?,
            };
            self.ahead.entries.push_back(Entry {
                ino: entry.ino(),
                off: entry.next_entry_cookie(),
                type_: raw_type(entry.file_type()),
                name: entry.file_name().to_bytes().into(),
            });
            if batch.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

fn raw_type(file_type: FileType) -> u8 {
    // `d_type` is the type's bits of a mode, shifted.
    match file_type {
        FileType::Unknown => libc::DT_UNKNOWN,
        known => (known.as_raw_mode() >> 12) as u8,
    }
}
