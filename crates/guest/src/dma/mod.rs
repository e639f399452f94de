//! How memory becomes reachable for a device: one set of operations for each device, chosen when its features are
//! final.
//!
//! Everything that a device reads or writes goes through [`DmaOps`]: rings and data alike. The window and the version
//! table are memory of the device and never do.

#![expect(unsafe_code, reason = "a mapping is made of a pointer, which the caller vouches for")]

mod bounce;
mod choose;
mod counters;
mod direct;
mod lent;
mod memory;
mod pages;

use core::ptr::NonNull;

use thiserror::Error;

pub use bounce::{Bounce, WhenFull};
pub use choose::{ACCESS_PLATFORM, DmaChoice};
pub use counters::DmaCounts;
pub use direct::{Direct, DirectMemory};
pub(crate) use lent::Lent;
pub use memory::{DmaBuffer, DmaMemory};

/// Makes memory reachable for one device.
pub trait DmaOps: Send + Sync {
    /// Allocates memory that both sides reach without any copy, zeroed, its address a multiple of 4096.
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError>;

    /// Takes back what [`Self::allocate`] gave. The device no longer uses it.
    fn free(&self, memory: DmaMemory);

    /// Makes `len_bytes` of ordinary memory reachable, and copies them where the direction is to the device and they
    /// have to be copied. At most [`Self::mapping_len_max`] bytes. May block until the pool has room.
    ///
    /// # Safety
    ///
    /// `start..start + len_bytes` is memory that may be read, and written where the direction is from the device. It
    /// stays so, and the caller leaves it alone, until [`Self::unmap`].
    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError>;

    /// Ends a mapping that the device no longer uses; of one from the device copies the first `written_bytes` back
    /// where they were copied.
    ///
    /// # Safety
    ///
    /// `mapped` is what [`Self::map`] of these operations gave, and its memory is still what it was then.
    unsafe fn unmap(&self, mapped: Mapped, written_bytes: usize);

    /// The longest mapping, in bytes.
    fn mapping_len_max(&self) -> usize;

    /// What no mapping crosses a multiple of, in bytes of the driver's addresses: the page size where neighbouring
    /// pages lie apart for the device.
    fn boundary(&self) -> Option<usize> {
        None
    }

    /// How many more bytes of [`Self::allocate`] may be kept for long: beyond that there may be no room for mappings.
    fn keepable_bytes(&self) -> usize {
        usize::MAX
    }

    /// What went through it so far; zeros where nobody counts.
    fn counts(&self) -> DmaCounts {
        DmaCounts::default()
    }
}

/// A mapping of ordinary memory, to be given back to [`DmaOps::unmap`].
#[derive(Debug)]
pub struct Mapped {
    /// Where the device finds it.
    pub address: u64,
    /// How long it is, in bytes.
    pub len_bytes: usize,
    /// The caller's memory.
    pub start: NonNull<u8>,
    /// Who writes.
    pub direction: Direction,
    /// Where a copy lies, in the operations' own terms.
    pub copy: Option<NonNull<u8>>,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver writes, the device reads.
    ToDevice,
    /// The device writes, the driver reads.
    FromDevice,
}

/// Why memory cannot be reached by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DmaError {
    /// The pool has no room.
    #[error("{wanted_bytes} bytes are not free in a pool of {pool_bytes}")]
    Exhausted {
        /// What was asked for.
        wanted_bytes: usize,
        /// All that there is.
        pool_bytes: usize,
    },
    /// More than one mapping can hold.
    #[error("{wanted_bytes} bytes exceed the largest mapping, {len_max_bytes}")]
    TooLong {
        /// What was asked for.
        wanted_bytes: usize,
        /// The limit.
        len_max_bytes: usize,
    },
    /// The platform has no mapping for it.
    #[error("the platform cannot map this memory for the device")]
    Unmappable,
    /// The device would need memory that the host must not see (no VIRTIO_F_ACCESS_PLATFORM on a platform that demands
    /// it).
    #[error("the device does not go through the platform's DMA, and would need private memory")]
    PrivateMemory,
}
