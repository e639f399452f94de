//! The file system's interrupts: counted by the handlers, waited for by the library.

use core::sync::atomic::{AtomicU64, Ordering};

use transom_guest::{
    platform::Event as _,
    transport::InterruptWait,
};

use super::{
    arch,
    platform::{Event, LOST_NS},
    processors::{self, Reason},
};

/// Vectors of a device that are told apart.
pub(super) const VECTORS: usize = 8;

/// Interrupts by vector of the device; those of a line count as vector 0.
static COUNTS: [AtomicU64; VECTORS] = [const { AtomicU64::new(0) }; VECTORS];

/// Counts an interrupt of the device, and wakes who waits for it. Called by handlers.
pub(super) fn raise(vector: usize) {
    processors::this().interrupted(Reason::Device);
    COUNTS[vector % VECTORS].fetch_add(1, Ordering::SeqCst);
    Event.wake_all();
}

/// Returns the number of the device's interrupts since [`reset`], by vector.
pub(super) fn counts() -> [u64; VECTORS] {
    COUNTS.each_ref().map(|count| count.load(Ordering::SeqCst))
}

/// Sets the counts to zero, while no device is in use.
pub(super) fn reset() {
    COUNTS.iter().for_each(|count| count.store(0, Ordering::SeqCst));
}

/// Waits for the interrupts that [`raise`] counts.
pub(super) struct Wakes;

impl InterruptWait for Wakes {
    fn count(&self, vector: u16) -> u64 {
        COUNTS.get(usize::from(vector)).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    /// Ignores the deadline, after which the library would look by itself: that would hide a lost interrupt.
    fn wait(&self, vector: u16, seen: u64, _deadline_ns: Option<u64>) -> bool {
        let lost_ns = arch::now_ns().saturating_add(LOST_NS);
        let has_come = Event.wait(&mut || self.count(vector) != seen, Some(lost_ns));
        assert!(has_come, "no interrupt of vector {vector} in {} s", LOST_NS / 1_000_000_000);
        true
    }

    fn rearm(&self) {
        arch::rearm_line();
    }
}
