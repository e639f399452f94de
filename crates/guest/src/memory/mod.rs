//! Where a read puts its bytes and where a write takes them from: slices, lists of slices, and memory that may fault.
//!
//! [`ByteSink`] and [`ByteSource`] are what a kernel hands to
//! [`OpenFile::read_into`](crate::volume::OpenFile::read_into) and
//! [`write_from`](crate::volume::OpenFile::write_from) in place of a slice. [`IoSlice`] and [`IoSliceMut`] are
//! memory by address, which others may change at the same time; [`IoSlices`] and [`IoSlicesMut`] are lists of them. A
//! kernel implements the traits itself for the memory of a process, whose pages may be missing.
//!
//! The library copies while it holds locks: so a copy never waits, and ends early at a page that is missing. It asks
//! for the page with no lock held, and then copies on. Positions belong to the library; an implementation has none.

mod cursor;
mod list;
mod plain;
mod slice;

#[cfg(all(test, not(feature = "loom")))]
mod memory_test;

pub(crate) use cursor::{Origin, Patience, Target};
pub use list::{IoSlices, IoSlicesMut, Pieces, PiecesMut};
pub use slice::{IoSlice, IoSliceMut};

/// Where a read puts its bytes.
pub trait ByteSink {
    /// Returns the number of bytes that there is room for. It does not change during a call of the library.
    fn len_bytes(&self) -> usize;

    /// Makes memory present and writable, beginning at byte `at`. Returns how many of the `len_bytes` from there are
    /// present, at least one unless the address is bad; they may be taken away again.
    ///
    /// No lock of the library is held. May block, and may call the library.
    fn fault_in(&mut self, at: usize, len_bytes: usize) -> usize;

    /// Copies `from` to byte `at`. Returns how many bytes were copied: fewer than there are if a page is missing.
    ///
    /// Called with locks of the library held, perhaps with interrupts off: it never waits, and calls nothing of the
    /// library but the methods of [`IoSlice`]. In a kernel, a page fault ends the copy.
    fn put(&mut self, at: usize, from: IoSlice<'_>) -> usize;

    /// Returns all of it as slices, if it is memory that cannot fault and stays where it is. A device may then write it
    /// in place, and [`Self::put`] and [`Self::fault_in`] always succeed.
    fn slices(&self) -> Option<&[IoSliceMut<'_>]> {
        None
    }
}

/// Where a write takes its bytes from.
pub trait ByteSource {
    /// Returns the number of bytes. It does not change during a call of the library.
    fn len_bytes(&self) -> usize;

    /// Makes memory present and readable: see [`ByteSink::fault_in`].
    fn fault_in(&mut self, at: usize, len_bytes: usize) -> usize;

    /// Copies the bytes from `at` on to `to`. Returns how many were copied: fewer than there is room for if a page is
    /// missing. The conditions are those of [`ByteSink::put`].
    fn take(&mut self, at: usize, to: IoSliceMut<'_>) -> usize;

    /// Returns all of it as slices, if it is memory that cannot fault and stays where it is: see [`ByteSink::slices`].
    fn slices(&self) -> Option<&[IoSlice<'_>]> {
        None
    }
}
