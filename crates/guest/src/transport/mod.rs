//! How a driver reaches a virtio device: its registers, its configuration space, its queues and its shared memory.
//!
//! Source: virtio 1.3 §2 and §4.

mod checks;
mod interrupts;
pub mod mmio;
pub mod pci;
mod registers;

use thiserror::Error;

pub use interrupts::{InterruptCounter, InterruptWait, Interrupts};
pub use registers::{Registers, VolatileRegisters};

/// One virtio device, driven by one driver.
pub trait Transport: Send + Sync {
    /// The virtio device type, 26 for a file system.
    fn device_type(&self) -> u32;

    /// The device status field (§2.1).
    fn status(&self) -> Result<u8, TransportError>;

    /// Adds bits to the device status.
    fn add_status(&self, bits: u8) -> Result<(), TransportError>;

    /// Resets the device and returns when it has let go of every buffer and queue (§2.4).
    fn reset(&self) -> Result<(), TransportError>;

    /// What the device offers.
    fn device_features(&self) -> Result<u64, TransportError>;

    /// What the driver takes of it.
    fn set_driver_features(&self, features: u64) -> Result<(), TransportError>;

    /// Reads the configuration space from `offset_bytes`, all of `bytes` from one generation (§2.5).
    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError>;

    /// The most descriptors that the queue can have, 0 where there is no such queue.
    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError>;

    /// Gives the device a queue of `len` descriptors and starts it.
    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError>;

    /// Tells the device that there is something in the queue. Does not block.
    fn notify(&self, queue: u16);

    /// Returns a number that changes whenever the device tells of the queue, for [`Self::wait`]. It may stay the same
    /// where each wait takes what the device has told, and no two queues share that.
    fn told(&self, queue: u16) -> u64 {
        let _ = queue;
        0
    }

    /// Blocks until the device has told of the queue since [`Self::told`] returned `seen`, or until `deadline_ns` of
    /// the platform's clock; a transport that can only be polled returns at once. May return early. Fails when the
    /// device is gone.
    fn wait(&self, queue: u16, seen: u64, deadline_ns: Option<u64>) -> Result<(), TransportError>;

    /// The shared memory region with this id (§2.10), where the device has one that lies within what carries it.
    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError>;
}

/// Where the parts of a split virtqueue lie, as the device addresses memory (§2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueAddresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring, the "driver area".
    pub available: u64,
    /// The used ring, the "device area".
    pub used: u64,
}

/// Device memory that the driver may map, never lend for DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShmRegion {
    /// Where it begins: a physical address, or in a process an offset within the mapped window.
    pub address: u64,
    /// In bytes, above 0; `address + len_bytes` does not overflow.
    pub len_bytes: u64,
}

/// Why a device cannot be reached or driven.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransportError {
    /// The device is gone, or the process that plays it.
    #[error("the device is gone")]
    Gone,
    /// The device says what it must not.
    #[error("the device broke the protocol: {0}")]
    Broken(&'static str),
    /// A shared memory region does not lie within what carries it.
    #[error("shared memory region {id}: {len_bytes} bytes at {offset_bytes:#x} exceed a BAR of {bar_len_bytes} bytes")]
    RegionExceedsBar {
        /// Its id.
        id: u8,
        /// Where it says it begins.
        offset_bytes: u64,
        /// How long it says it is.
        len_bytes: u64,
        /// What there is.
        bar_len_bytes: u64,
    },
    /// The device lacks what the driver needs.
    #[error("the device lacks {0}")]
    Lacks(&'static str),
}
