//! Making memory reachable by a device: one set of operations for each device, chosen when its features are final.
//!
//! Everything that a device reads or writes goes through [`DmaOps`], both rings and data. The window and the version
//! table never do, because they are the device's own memory.

#![expect(unsafe_code, reason = "a mapping is made of a pointer, which the caller vouches for")]

mod bounce;
mod buffer;
mod choose;
mod counters;
mod direct;
mod lent;
mod memory;
mod pages;

use core::ptr::NonNull;

use thiserror::Error;

pub use bounce::{Bounce, WhenFull};
pub use buffer::DmaBuffer;
pub use choose::{ACCESS_PLATFORM, DmaChoice};
pub use counters::DmaCounts;
pub use direct::{Direct, DirectMemory};
pub(crate) use lent::Lent;
pub use memory::DmaMemory;

/// Makes memory reachable by one device.
pub trait DmaOps: Send + Sync {
    /// Allocates zeroed memory that both sides access without copies; its address is a multiple of 4096.
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError>;

    /// Frees memory from [`Self::allocate`], which the device no longer uses.
    fn free(&self, memory: DmaMemory);

    /// As [`Self::allocate`], for data that one side has at a time. The library calls [`Self::sync_for_device`] before
    /// the device gets it, and [`Self::sync_for_cpu`] after the device has returned it. So where devices do not see the
    /// processor's caches, this may be cached memory; [`Self::allocate`] may not.
    fn allocate_data(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        self.allocate(len_bytes)
    }

    /// Hands `len_bytes` at `offset` of memory from [`Self::allocate_data`] to the device: writes cached stores back,
    /// so that the device reads them, and so that none is written back over what the device writes.
    fn sync_for_device(&self, memory: &DmaMemory, offset: usize, len_bytes: usize, direction: Direction) {
        let _ = (memory, offset, len_bytes, direction);
    }

    /// Takes `len_bytes` at `offset` of memory from [`Self::allocate_data`] back, which the device has written: drops
    /// what is cached of them. It is called only for bytes that the device has written.
    ///
    /// Caches drop whole lines, so other data in a line of the range may be lost: who passes a range for the device to
    /// write keeps other data out of its lines.
    fn sync_for_cpu(&self, memory: &DmaMemory, offset: usize, len_bytes: usize) {
        let _ = (memory, offset, len_bytes);
    }

    /// Makes `len_bytes` of ordinary memory reachable, at most [`Self::mapping_len_max`]. Copies them if a copy is
    /// needed and the direction is to the device. May block until the pool has room.
    ///
    /// # Safety
    ///
    /// `start..start + len_bytes` is memory that may be read, and written if the direction is from the device. It stays
    /// so until [`Self::unmap`]. Meanwhile others access it from outside Rust or atomically, byte by byte, or not at
    /// all. Operations that copy access it in the same way.
    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError>;

    /// Ends a mapping that the device no longer uses. If its direction is from the device and it is a copy, copies the
    /// first `written_bytes` back.
    ///
    /// # Safety
    ///
    /// `mapped` was returned by [`Self::map`] of these operations, and its memory is still valid as it was then.
    unsafe fn unmap(&self, mapped: Mapped, written_bytes: usize);

    /// Returns whether [`Self::map`] lets the device access `len_bytes` at `start` where they are, without accessing
    /// them itself. Otherwise a list of slices is copied through memory from [`Self::allocate_data`].
    fn is_in_place(&self, start: NonNull<u8>, len_bytes: usize) -> bool {
        let _ = (start, len_bytes);
        true
    }

    /// Returns the maximum length of a mapping, in bytes.
    fn mapping_len_max(&self) -> usize;

    /// Returns a number of bytes such that no mapping crosses a multiple of it, in the driver's addresses: the page
    /// size if neighbouring pages are not contiguous for the device.
    fn boundary(&self) -> Option<usize> {
        None
    }

    /// Returns how many more bytes of [`Self::allocate`] may be kept long-term; with more, there may be no room for
    /// mappings.
    fn keepable_bytes(&self) -> usize {
        usize::MAX
    }

    /// Returns the counters; zeros if nothing is counted.
    fn counts(&self) -> DmaCounts {
        DmaCounts::default()
    }
}

/// A mapping of ordinary memory, to be passed to [`DmaOps::unmap`].
#[derive(Debug)]
pub struct Mapped {
    /// Its address for the device.
    pub address: u64,
    /// Its length in bytes.
    pub len_bytes: usize,
    /// The caller's memory.
    pub start: NonNull<u8>,
    /// Which side writes.
    pub direction: Direction,
    /// The address of the copy, in terms of the operations that made it.
    pub copy: Option<NonNull<u8>>,
}

/// Which side writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver writes, the device reads.
    ToDevice,
    /// The device writes, the driver reads.
    FromDevice,
}

/// Why the device cannot reach memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DmaError {
    /// The pool has no room.
    #[error("{wanted_bytes} bytes are not free in a pool of {pool_bytes}")]
    Exhausted {
        /// Number of bytes requested.
        wanted_bytes: usize,
        /// Size of the pool.
        pool_bytes: usize,
    },
    /// The request exceeds the largest mapping.
    #[error("{wanted_bytes} bytes exceed the largest mapping, {len_max_bytes}")]
    TooLong {
        /// Number of bytes requested.
        wanted_bytes: usize,
        /// The limit.
        len_max_bytes: usize,
    },
    /// The platform cannot map the memory.
    #[error("the platform cannot map this memory for the device")]
    Unmappable,
    /// The device would need memory that the host must not see (no VIRTIO_F_ACCESS_PLATFORM on a platform that requires
    /// it).
    #[error("the device does not go through the platform's DMA, and would need private memory")]
    PrivateMemory,
    /// The buffer was allocated by the DMA operations of another device.
    #[error("the buffer was allocated for another device")]
    OtherDevice,
}
