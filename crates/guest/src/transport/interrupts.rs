//! How a driver learns that its device has something to tell: by interrupts that the kernel waits for, or by looking.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use super::TransportError;

/// The device wants to be reset: bit 6 of the status (§2.1).
const NEEDS_RESET: u8 = 0x40;

/// A driver that polls looks at the status once in so many waits: reading a register costs an exit in a virtual machine, so
/// that looking each time would cost more than the poll itself.
const WAITS_PER_STATUS: u32 = 4096;

/// A kernel's own wait for the interrupts of one device.
pub trait InterruptWait: Send + Sync {
    /// Blocks until interrupt `vector` has come, or until `deadline_ns` of the platform's clock; tells whether it has.
    ///
    /// One that came while nobody waited is remembered, and ends the next wait. An interrupt ends every wait for its
    /// vector that is under way. May return early.
    fn wait(&self, vector: u16, deadline_ns: Option<u64>) -> bool;

    /// The device has been told that its interrupt was seen: a line that was masked when it fired may fire again.
    fn rearm(&self) {}
}

/// Which interrupts a device may use.
pub enum Interrupts {
    /// None: its queues are polled.
    Polling,
    /// One line, shared by all queues; vector 0 of the wait.
    Line(Box<dyn InterruptWait>),
    /// So many messages, MSI-X vectors that the kernel has set up from 0 on. A device without such vectors has none.
    Messages(u16, Box<dyn InterruptWait>),
}

/// Notices, without asking too often, that a device that says nothing is gone.
#[derive(Debug, Default)]
pub(super) struct Watch {
    waits: AtomicU32,
}

impl Watch {
    /// Whether this wait of a driver that polls is one that looks at the status.
    pub(super) fn is_due(&self) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed) % WAITS_PER_STATUS == WAITS_PER_STATUS - 1
    }
}

/// What the status of a running device says about it.
pub(super) fn check_alive(status: u8) -> Result<(), TransportError> {
    match status {
        // As memory reads where no device is.
        0xff => Err(TransportError::Gone),
        status if status & NEEDS_RESET != 0 => Err(TransportError::Broken("it asks to be reset")),
        _ => Ok(()),
    }
}
