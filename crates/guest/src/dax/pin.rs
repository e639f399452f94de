//! A range that is lent, and what has to happen before one goes.

use core::{ops::Range, ptr::NonNull};

use super::{RANGE_LEN, Window};
use crate::{Errno, Platform};

/// What a range is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// A range of a file that lies in the window, and stays there for as long as this lives.
///
/// Held for a copy or a fault, and for as long as something outside the page tables refers to its pages. Truncation
/// waits for it: whoever holds one takes no lock of the volume and sends no request but through the range's own inode's
/// faults.
#[must_use = "the range may go at once"]
pub struct Pin<'w, P: Platform> {
    window: &'w Window<P>,
    slot: u32,
    is_writable: bool,
}

impl<'w, P: Platform> Pin<'w, P> {
    /// Takes over a use that was counted.
    pub(super) fn new(window: &'w Window<P>, slot: u32, is_writable: bool) -> Self {
        Self { window, slot, is_writable }
    }

    /// Where the range begins in the window, in bytes: a multiple of [`RANGE_LEN`].
    pub fn window_offset(&self) -> u64 {
        u64::from(self.slot) * RANGE_LEN
    }

    /// Where it begins in the guest's memory.
    pub fn address(&self) -> NonNull<u8> {
        self.window.address(self.window_offset())
    }

    /// Whether it may be stored to.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Copies from `at`, in bytes within the range. Errors: EFAULT where the file has no page there, EINVAL outside.
    pub fn load(&self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        self.check(at, bytes.len())?;
        self.window.memory().load(self.window_offset() + at as u64, bytes)
    }

    /// Copies to `at`, in bytes within the range. Errors: as [`Self::load`]; EACCES where it is mapped for reading.
    pub fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.check(at, bytes.len())?;
        if !self.is_writable {
            return Err(Errno::ACCESS);
        }
        self.window.memory().store(self.window_offset() + at as u64, bytes)
    }

    /// Has the page at `at`, in bytes within the range, get a place on the storage as a store does, and changes
    /// nothing. Errors: as [`Self::store`].
    pub fn touch(&self, at: usize) -> Result<(), Errno> {
        self.check(at, 1)?;
        if !self.is_writable {
            return Err(Errno::ACCESS);
        }
        self.window.memory().touch(self.window_offset() + at as u64)
    }

    /// Whether a store to the range is given its place on the storage, durably, before it is made: see
    /// [`WindowMemory::make_synchronous`](super::WindowMemory::make_synchronous).
    pub fn is_synchronous(&self) -> bool {
        self.is_writable && self.window.memory().make_synchronous(self.window_offset(), RANGE_LEN)
    }

    /// Says that a sequential reader goes on to the next range.
    pub(crate) fn leave(&self) {
        self.window.leave(self.slot);
    }

    fn check(&self, at: usize, len: usize) -> Result<(), Errno> {
        match at.checked_add(len) {
            Some(end) if end as u64 <= RANGE_LEN => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }
}

impl<P: Platform> Drop for Pin<'_, P> {
    fn drop(&mut self) {
        self.window.unpin(self.slot);
    }
}

/// Page tables of one inode's mappings, as whoever made them knows them.
///
/// No lock of the window is held during a call.
pub trait PageTables: Send + Sync {
    /// Takes the pages of range `index` (`index * RANGE_LEN` in the file) out, so that it can be unmapped; false where
    /// it is in use, or was used of late. Nobody holds a pin of it, and nobody gets one until this returns.
    ///
    /// Waits for nothing: locks are tried. What was stored stays recorded as not flushed.
    fn release(&self, index: u64) -> bool;

    /// Takes every page of `bytes` of the file out, private copies too where `with_copies`; faults there find no range
    /// until the file has been changed. Waits for faults under way. The file's `size_lock` is held.
    fn revoke(&self, bytes: Range<u64>, with_copies: bool);

    /// Follows a change that the server has made to the file, for which pages were revoked. Without this call the
    /// change may not have happened: whatever is recorded of stores still holds.
    fn changed(&self, change: Change) {
        let _ = change;
    }
}

/// What a request did to bytes that may have been stored to and not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The file ends after this many bytes, or did for a moment.
    Cut {
        /// Its length.
        len_bytes: u64,
    },
    /// What lay at `from_bytes` and after it lies at `to_bytes` now. Where that is less, the bytes between are gone.
    Moved {
        /// Where it began.
        from_bytes: u64,
        /// Where it begins.
        to_bytes: u64,
    },
}
