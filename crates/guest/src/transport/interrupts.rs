//! How a driver learns of the device's notifications: the kernel waits for interrupts, or the driver polls.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use super::TransportError;
use crate::{platform::Event, sync::atomic::AtomicU64};

/// The device needs a reset: bit 6 of the status (§2.1).
const NEEDS_RESET: u8 = 0x40;

/// A polling driver reads the status once in this many waits: reading a register causes an exit in a virtual machine,
/// so reading it each time would cost more than the poll itself.
const WAITS_PER_STATUS: u32 = 4096;

/// The kernel's way to wait for the interrupts of one device. [`InterruptCounter`] is one.
///
/// Several queues may share a vector, and each has a thread that waits for it, so interrupts are counted: a thread
/// reads the count, checks its queue, and waits for the count to change. An interrupt that comes in between ends that
/// wait at once, whichever other threads it woke.
pub trait InterruptWait: Send + Sync {
    /// Returns the number of interrupts of `vector` so far, modulo 2⁶⁴.
    fn count(&self, vector: u16) -> u64;

    /// Blocks until the count of `vector` differs from `seen`, or until `deadline_ns` of the platform's clock. Returns
    /// whether it differs. May return early. An interrupt ends every wait for its vector.
    fn wait(&self, vector: u16, seen: u64, deadline_ns: Option<u64>) -> bool;

    /// Counts an interrupt of `vector` and ends every wait for it. Called by the library in place of an interrupt that
    /// will not come: a line has one cause for all queues, so whoever acknowledges it for a queue may take the cause
    /// that another queue's thread waits for.
    fn raise(&self, vector: u16);

    /// Called once the device's interrupt has been acknowledged: a line that was masked when it fired may fire again.
    /// May be called without an interrupt.
    fn rearm(&self) {}
}

/// Counts the interrupts of a device's vectors, and wakes waiters through events of the platform.
///
/// The kernel's interrupt handlers call [`Self::raise`], so [`Event::wake_all`] is called in a handler.
pub struct InterruptCounter<E> {
    vectors: Box<[Vector<E>]>,
}

struct Vector<E> {
    count: AtomicU64,
    event: E,
}

impl<E: Event> InterruptCounter<E> {
    /// Creates counters for vectors 0 to `vectors` - 1.
    pub fn new(vectors: u16) -> Self {
        Self { vectors: (0..vectors).map(|_| Vector { count: AtomicU64::new(0), event: E::default() }).collect() }
    }

    /// Counts an interrupt and wakes everyone who waits for it. Ignores an unknown vector.
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

    fn raise(&self, vector: u16) {
        self.raise(vector);
    }
}

impl<E: Event> InterruptWait for alloc::sync::Arc<InterruptCounter<E>> {
    fn count(&self, vector: u16) -> u64 {
        (**self).count(vector)
    }

    fn wait(&self, vector: u16, seen: u64, deadline_ns: Option<u64>) -> bool {
        (**self).wait(vector, seen, deadline_ns)
    }

    fn raise(&self, vector: u16) {
        (**self).raise(vector);
    }
}

/// Which interrupts a device may use.
pub enum Interrupts {
    /// No interrupts: the queues are polled.
    Polling,
    /// One line, shared by all queues; vector 0 of the wait.
    Line(Box<dyn InterruptWait>),
    /// This many MSI-X messages, vectors that the kernel has set up starting at 0. A device without MSI-X support has
    /// none.
    Messages(u16, Box<dyn InterruptWait>),
}

/// Waits for a device's only line, which stays up until somebody has read the causes, and which the kernel's handler
/// may have masked meanwhile.
#[derive(Debug, Default)]
pub(super) struct SharedLine {
    /// The count at the last acknowledgement.
    acknowledged: AtomicU64,
}

impl SharedLine {
    /// The configuration or the device's status has changed (§4.1.4.5, §4.2.2).
    const CONFIG: u32 = 2;

    /// Waits as [`Transport::wait`](super::Transport::wait) does; `acknowledge` reads the causes, which quietens the
    /// line. Returns whether to read the device's status.
    ///
    /// A caller whose reply has come without a wait leaves its interrupt to the next one, who has already counted it:
    /// unless that is acknowledged first, a masked line would never fire again.
    pub(super) fn wait(
        &self,
        source: &dyn InterruptWait,
        seen: u64,
        deadline_ns: Option<u64>,
        acknowledge: impl Fn() -> u32,
    ) -> bool {
        if self.acknowledged.load(Ordering::SeqCst) != seen {
            let causes = self.acknowledge(source, &acknowledge);
            // It may be what the caller waits for.
            if causes != 0 {
                return causes & Self::CONFIG != 0;
            }
        }
        let has_come = source.wait(0, seen, deadline_ns);
        let causes = self.acknowledge(source, &acknowledge);
        !has_come || causes & Self::CONFIG != 0
    }

    fn acknowledge(&self, source: &dyn InterruptWait, acknowledge: impl Fn() -> u32) -> u32 {
        // Read first: an interrupt after this needs another acknowledgement.
        let mut count = source.count(0);
        let causes = acknowledge();
        if causes != 0 {
            // Since the last interrupt the line may have been masked, or up all the time. A reply of another queue that
            // came then has raised no interrupt of its own, and will not, because its cause has just been taken.
            source.raise(0);
            count = count.wrapping_add(1);
        }
        source.rearm();
        self.acknowledged.store(count, Ordering::SeqCst);
        causes
    }
}

/// How a device notifies that has one interrupt for everything, or none: virtio-mmio, and transports that know no more.
pub struct OneInterrupt {
    interrupts: Interrupts,
    line: SharedLine,
    watch: Watch,
}

impl OneInterrupt {
    /// Uses these; of [`Interrupts::Messages`], vector 0.
    pub fn new(interrupts: Interrupts) -> Self {
        Self { interrupts, line: SharedLine::default(), watch: Watch::default() }
    }

    /// Implements [`Transport::notifications`](super::Transport::notifications), for every queue.
    pub fn count(&self) -> u64 {
        match &self.interrupts {
            Interrupts::Polling => 0,
            Interrupts::Line(source) | Interrupts::Messages(_, source) => source.count(0),
        }
    }

    /// Implements [`Transport::wait`](super::Transport::wait), for every queue. `acknowledge` reads the causes, which
    /// quietens the line; `status` reads the device's status.
    ///
    /// # Errors
    /// The device is gone, or asks to be reset.
    pub fn wait(
        &self,
        seen: u64,
        deadline_ns: Option<u64>,
        acknowledge: impl Fn() -> u32,
        status: impl FnOnce() -> Result<u8, TransportError>,
    ) -> Result<(), TransportError> {
        let must_look = match &self.interrupts {
            Interrupts::Polling => self.watch.is_due(),
            Interrupts::Line(source) | Interrupts::Messages(_, source) => {
                self.line.wait(&**source, seen, deadline_ns, acknowledge)
            }
        };
        if must_look { check_alive(status()?) } else { Ok(()) }
    }
}

/// Detects, without reading the status too often, that a silent device is gone.
#[derive(Debug, Default)]
pub(super) struct Watch {
    waits: AtomicU32,
}

impl Watch {
    /// Returns whether this wait of a polling driver should read the status.
    pub(super) fn is_due(&self) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed) % WAITS_PER_STATUS == WAITS_PER_STATUS - 1
    }
}

/// Checks the status of a running device.
///
/// Errors: the device is gone, or asks to be reset.
pub(super) fn check_alive(status: u8) -> Result<(), TransportError> {
    match status {
        // Absent devices read as all ones.
        0xff => Err(TransportError::Gone),
        status if status & NEEDS_RESET != 0 => Err(TransportError::Broken("it asks to be reset")),
        _ => Ok(()),
    }
}
