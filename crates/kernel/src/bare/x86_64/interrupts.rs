//! The file system's interrupts: counted by the handler, waited for by the library.

use core::sync::atomic::{AtomicU64, Ordering};

use spinning_top::Spinlock;
use transom_guest::{
    Platform as _,
    platform::Event as _,
    transport::{InterruptWait, TransportError},
};

use super::{
    apic::{Controllers, LINE, MESSAGES},
    processor::{self, Quiet},
};
use crate::bare::platform::{Bare, Event};

/// How long a wait for an interrupt may take. The library asks for far less, and would then look by itself: that would
/// hide a lost interrupt.
pub(super) const LOST_NS: u64 = 120_000_000_000;

/// Interrupts by vector of the device; those of the line count as vector 0.
static COUNTS: [AtomicU64; VECTORS] = [const { AtomicU64::new(0) }; VECTORS];
const VECTORS: usize = (MESSAGES.end - MESSAGES.start) as usize;

/// Set while interrupts are in use. Taken with interrupts off.
static CONTROLLERS: Spinlock<Option<Controllers>> = Spinlock::new(None);

/// Lets interrupts in while it lives.
pub(super) struct Interrupted(());

impl Interrupted {
    /// Sets the controllers up, and lets interrupts in.
    pub(super) fn begin() -> Result<Self, TransportError> {
        let controllers = Controllers::new()?;
        controllers.begin();
        controllers.set_lines(true);
        COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        *CONTROLLERS.lock() = Some(controllers);
        processor::let_interrupts_in();
        Ok(Self(()))
    }

    /// Returns the number of the device's interrupts, by vector.
    pub(super) fn counts(&self) -> [u64; VECTORS] {
        COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        processor::keep_interrupts_off();
        if let Some(controllers) = CONTROLLERS.lock().take() {
            controllers.set_lines(false);
        }
    }
}

/// Returns the processor's vector for a vector of the device, of which there are at most 15.
pub(super) fn message(vector: u16) -> u32 {
    u32::from(MESSAGES.start) + u32::from(vector)
}

/// Handles an interrupt. Called with interrupts off.
pub(super) fn arrived(vector: u8) {
    let controllers = CONTROLLERS.lock();
    let Some(controllers) = &*controllers else { return };
    if MESSAGES.contains(&vector) {
        COUNTS[usize::from(vector - MESSAGES.start)].fetch_add(1, Ordering::SeqCst);
    } else if vector == LINE {
        // The line stays up until the device's status has been read, which `rearm` follows.
        controllers.set_lines(false);
        COUNTS[0].fetch_add(1, Ordering::SeqCst);
    }
    controllers.end_interrupt();
}

/// Waits for the interrupts that [`arrived`] counts.
pub(super) struct Wakes;

impl InterruptWait for Wakes {
    fn count(&self, vector: u16) -> u64 {
        COUNTS.get(usize::from(vector)).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    /// Ignores the deadline: see [`LOST_NS`].
    fn wait(&self, vector: u16, seen: u64, _deadline_ns: Option<u64>) -> bool {
        let lost_ns = Bare.now_ns().saturating_add(LOST_NS);
        let has_come = Event.wait(&mut || self.count(vector) != seen, Some(lost_ns));
        assert!(has_come, "no interrupt of vector {vector} in {} s", LOST_NS / 1_000_000_000);
        true
    }

    fn rearm(&self) {
        let _quiet = Quiet::begin();
        if let Some(controllers) = &*CONTROLLERS.lock() {
            controllers.set_lines(true);
        }
    }
}
