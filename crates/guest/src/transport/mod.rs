//! How a driver reaches a virtio device: its registers, its configuration space, its queues and its shared memory.
//!
//! Source: virtio 1.3 §2 and §4.

pub mod checks;
pub mod fdt;
mod interrupts;
pub mod mmio;
pub mod pci;
mod registers;

use thiserror::Error;

pub use interrupts::{InterruptCounter, InterruptWait, Interrupts, OneInterrupt};
pub use registers::{Registers, VolatileRegisters};

/// One virtio device, driven by one driver.
pub trait Transport: Send + Sync {
    /// Returns the virtio device type, 26 for a file system.
    fn device_type(&self) -> u32;

    /// Returns the device status field (§2.1).
    fn status(&self) -> Result<u8, TransportError>;

    /// Adds bits to the device status.
    fn add_status(&self, bits: u8) -> Result<(), TransportError>;

    /// Resets the device. Returns when it has released every buffer and queue (§2.4).
    fn reset(&self) -> Result<(), TransportError>;

    /// Returns the features that the device offers.
    fn device_features(&self) -> Result<u64, TransportError>;

    /// Sets the features that the driver accepts.
    fn set_driver_features(&self, features: u64) -> Result<(), TransportError>;

    /// Reads the configuration space starting at `offset_bytes`; all of `bytes` is from one generation (§2.5).
    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError>;

    /// Returns the maximum number of descriptors of the queue, 0 if there is no such queue.
    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError>;

    /// Gives the device a queue of `len` descriptors and starts it.
    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError>;

    /// Notifies the device of new buffers in the queue. Does not block.
    fn notify(&self, queue: u16);

    /// Returns a number that changes with every notification from the device for the queue, for [`Self::wait`]. It may
    /// be constant if each wait consumes the notifications and no two queues share them.
    fn notifications(&self, queue: u16) -> u64 {
        let _ = queue;
        0
    }

    /// Blocks until the device has sent a notification for the queue since [`Self::notifications`] returned `seen`, or
    /// until `deadline_ns` of the platform's clock. A transport that can only be polled returns at once. May return
    /// early. Fails when the device is gone.
    fn wait(&self, queue: u16, seen: u64, deadline_ns: Option<u64>) -> Result<(), TransportError>;

    /// Returns the shared memory region with this id (§2.10), if the device has one. Fails if the region exceeds the
    /// memory that contains it.
    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError>;

    /// Returns whether the device is known to be gone. Takes no lock and does not block.
    fn is_gone(&self) -> bool {
        false
    }
}

/// Where the parts of a split virtqueue are, as addresses of the device (§2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueAddresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring, the "driver area".
    pub available: u64,
    /// The used ring, the "device area".
    pub used: u64,
}

/// Device memory that the driver may map, but never use for DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShmRegion {
    /// Its start: a physical address or, in a process, an offset within the mapped window.
    pub address: u64,
    /// Length in bytes, above 0; `address + len_bytes` does not overflow.
    pub len_bytes: u64,
}

/// Why a device cannot be reached or driven.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransportError {
    /// The device, or the process that implements it, is gone.
    #[error("the device is gone")]
    Gone,
    /// The device violated the protocol.
    #[error("the device broke the protocol: {0}")]
    Broken(&'static str),
    /// No device is attached to the registers.
    #[error("there is no device at these registers")]
    Absent,
    /// The device has the legacy interface, that of before virtio 1.0.
    #[error(
        "it is a legacy device, version 1 of virtio-mmio, of type {device_type}: version 2 is needed \
         (QEMU: -global virtio-mmio.force-legacy=false)"
    )]
    Legacy {
        /// The virtio device type, 26 for a file system.
        device_type: u32,
    },
    /// A shared memory region exceeds the BAR that contains it.
    #[error("shared memory region {id}: {len_bytes} bytes at {offset_bytes:#x} exceed a BAR of {bar_len_bytes} bytes")]
    RegionExceedsBar {
        /// The region's id.
        id: u8,
        /// Its offset within the BAR, as the device states it.
        offset_bytes: u64,
        /// Its length, as the device states it.
        len_bytes: u64,
        /// The length of the BAR.
        bar_len_bytes: u64,
    },
    /// The device lacks what the driver needs.
    #[error("the device lacks {0}")]
    Lacks(&'static str),
}
