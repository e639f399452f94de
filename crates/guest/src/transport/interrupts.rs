//! How a driver learns that its device has something to tell: by interrupts that the kernel waits for, or by looking.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use super::TransportError;
use crate::{platform::Event, sync::atomic::AtomicU64};

/// The device wants to be reset: bit 6 of the status (§2.1).
const NEEDS_RESET: u8 = 0x40;

/// A driver that polls looks at the status once in so many waits: reading a register costs an exit in a virtual
/// machine, so that looking each time would cost more than the poll itself.
const WAITS_PER_STATUS: u32 = 4096;

/// A kernel's own wait for the interrupts of one device. [`InterruptCounter`] is one.
///
/// Several queues may share a vector, and each has a thread that waits for it. So interrupts are counted: a thread
/// takes the count, looks at its queue, and waits for another count. An interrupt that comes in between ends that wait
/// at once, whoever else it woke.
pub trait InterruptWait: Send + Sync {
    /// Returns how many interrupts of `vector` have come so far, modulo 2⁶⁴.
    fn count(&self, vector: u16) -> u64;

    /// Blocks until the count of `vector` is not `seen`, or until `deadline_ns` of the platform's clock; returns
    /// whether it is not. May return early. An interrupt ends every wait for its vector.
    fn wait(&self, vector: u16, seen: u64, deadline_ns: Option<u64>) -> bool;

    /// The device has been told that its interrupt was seen: a line that was masked when it fired may fire again.
    fn rearm(&self) {}
}

/// Counts the interrupts of a device's vectors, on events of the platform.
///
/// The kernel's handlers call [`Self::raise`], so that [`Event::wake_all`] is called in a handler.
pub struct InterruptCounter<E> {
    vectors: Box<[Vector<E>]>,
}

struct Vector<E> {
    count: AtomicU64,
    event: E,
}

impl<E: Event> InterruptCounter<E> {
    /// Counts for vectors 0 to `vectors` - 1.
    pub fn new(vectors: u16) -> Self {
        Self { vectors: (0..vectors).map(|_| Vector { count: AtomicU64::new(0), event: E::default() }).collect() }
    }

    /// Counts an interrupt and wakes everyone who waits for it. Of a vector that there is not, nothing happens.
    pub fn raise(&self, vector: u16) {
        if let Some(vector) = self.vectors.get(usize::from(vector)) {
            vector.count.fetch_add(1, Ordering::SeqCst);
            vector.event.wake_all();
        }
    }
}

impl<E: Event> InterruptWait for InterruptCounter<E> {
    fn count(&self, vector: u16) -> u64 {
        self.vectors.get(usize::from(vector)).map_or(0, |vector| vector.count.load(Ordering::SeqCst))
    }

    fn wait(&self, vector: u16, seen: u64, deadline_ns: Option<u64>) -> bool {
        let Some(vector) = self.vectors.get(usize::from(vector)) else { return false };
        vector.event.wait(&mut || vector.count.load(Ordering::SeqCst) != seen, deadline_ns)
    }
}

impl<E: Event> InterruptWait for alloc::sync::Arc<InterruptCounter<E>> {
    fn count(&self, vector: u16) -> u64 {
        (**self).count(vector)
    }

    fn wait(&self, vector: u16, seen: u64, deadline_ns: Option<u64>) -> bool {
        (**self).wait(vector, seen, deadline_ns)
    }
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
