//! Barriers between a ring's driver and its device.
//!
//! A device that is a program runs on a processor, and what orders memory among processors orders it with the device. A
//! device in hardware may need more: on aarch64 it is in another shareability domain, and on riscv64 its accesses are
//! not those of a processor. It says so by VIRTIO_F_ORDER_PLATFORM (virtio 1.3 §6.1).

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod hardware;

use core::sync::atomic::{Ordering::SeqCst, fence};

/// Whose accesses the driver's are ordered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Barriers {
    /// Those of processors.
    #[default]
    Processors,
    /// Those of hardware (VIRTIO_F_ORDER_PLATFORM).
    Platform,
}

impl Barriers {
    /// Orders all accesses before it with all after it. Atomic accesses to the ring have the order among processors
    /// already, except for a store that a later load must not overtake: there, [`Self::full`] is needed in any case.
    pub(super) fn of_platform(self) {
        // On x86, devices see memory in the order of the processor's stores.
        #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
        if self == Self::Platform {
            hardware::barrier();
        }
    }

    /// Orders all accesses before it with all after it, also stores with later loads.
    pub(super) fn full(self) {
        fence(SeqCst);
        self.of_platform();
    }
}
