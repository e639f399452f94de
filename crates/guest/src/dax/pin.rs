//! Lent ranges, and the hooks that run before a range is unmapped.

use core::{ops::Range, ptr::NonNull};

use super::{
    RANGE_LEN, Window,
    transfer::{load_to, store_from},
};
use crate::{
    Errno, Platform,
    memory::{Origin, Target},
};

/// The access for which a range is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// A range of a file in the window, which stays there for as long as this lives.
///
/// Held for a copy or a fault, and for as long as something outside the page tables refers to its pages. Truncation
/// waits for it, so its holder takes no lock of the volume, and sends no request except through faults of the range's
/// own inode.
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

    /// Returns the range's offset in the window in bytes: a multiple of [`RANGE_LEN`].
    pub fn window_offset(&self) -> u64 {
        u64::from(self.slot) * RANGE_LEN
    }

    /// Returns the range's address in the guest's memory.
    pub fn address(&self) -> NonNull<u8> {
        self.window.address(self.window_offset())
    }

    /// Returns whether it may be stored to.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Copies from `at`, in bytes within the range. Errors: EFAULT if the file has no page there, EINVAL outside the
    /// range.
    pub fn load(&self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        self.check(at, bytes.len())?;
        self.window.memory().load(self.window_offset() + at as u64, bytes)
    }

    /// Copies to `at`, in bytes within the range. Errors: as for [`Self::load`]; EACCES if it is mapped for reading
    /// only.
    pub fn store(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.check(at, bytes.len())?;
        if !self.is_writable {
            return Err(Errno::ACCESS);
        }
        self.window.memory().store(self.window_offset() + at as u64, bytes)
    }

    /// Copies from `at` to `to`. Returns how many bytes were copied, fewer if the caller's memory is not present.
    /// Errors: as for [`Self::load`].
    pub(crate) fn load_to(&self, at: usize, to: Target<'_>) -> Result<usize, Errno> {
        self.check(at, to.len())?;
        load_to(self.window.memory(), self.window_offset() + at as u64, to)
    }

    /// Copies to `at` from `from`. Returns how many bytes were copied, fewer if the caller's memory is not present.
    /// Errors: as for [`Self::store`].
    pub(crate) fn store_from(&self, at: usize, from: Origin<'_>) -> Result<usize, Errno> {
        self.check(at, from.len())?;
        if !self.is_writable {
            return Err(Errno::ACCESS);
        }
        store_from(self.window.memory(), self.window_offset() + at as u64, from)
    }

    /// Allocates storage for the page at `at`, in bytes within the range, as a store does, and changes nothing. Errors:
    /// as for [`Self::store`].
    pub fn touch(&self, at: usize) -> Result<(), Errno> {
        self.check(at, 1)?;
        if !self.is_writable {
            return Err(Errno::ACCESS);
        }
        self.window.memory().touch(self.window_offset() + at as u64)
    }

    /// Returns whether a store to the range waits for a durable storage allocation: see
    /// [`WindowMemory::make_synchronous`](super::WindowMemory::make_synchronous).
    pub fn is_synchronous(&self) -> bool {
        self.is_writable && self.window.memory().make_synchronous(self.window_offset(), RANGE_LEN)
    }

    /// Records that a sequential reader has gone on to the next range.
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

/// The page tables of one inode's mappings, implemented by the code that manages them.
///
/// No lock of the window is held during a call.
pub trait PageTables: Send + Sync {
    /// Removes the pages of range `index` (`index * RANGE_LEN` in the file), so that it can be unmapped. Returns false
    /// if the range is in use, or was used recently. Nobody holds a pin of it, and nobody gets one until this returns.
    ///
    /// Does not block: locks are only tried. Stores stay recorded as not flushed.
    fn release(&self, index: u64) -> bool;

    /// Removes every page of `bytes` of the file, including private copies if `with_copies`; faults there find no range
    /// until the file has been changed. Waits for faults in progress. The file's `size_lock` is held.
    fn revoke(&self, bytes: Range<u64>, with_copies: bool);

    /// Records a change that the server has made to the file, after pages were revoked for it. Without this call the
    /// change may not have happened, and what is recorded of stores still applies.
    fn changed(&self, change: Change) {
        let _ = change;
    }
}

/// The effect of a request on bytes that may have been stored to and not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The file ends after this many bytes, or did for a moment.
    Cut {
        /// Its length.
        len_bytes: u64,
    },
    /// The bytes at `from_bytes` and after it were moved to `to_bytes`. If that is less, the bytes between are gone.
    Moved {
        /// Where they began.
        from_bytes: u64,
        /// Where they begin now.
        to_bytes: u64,
    },
}
