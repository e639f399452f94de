//! The file system's interrupts: counted by the handlers, waited for by the library.

use core::sync::atomic::{AtomicU64, Ordering};

use transom_guest::{platform::Event as _, transport::InterruptWait};

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
pub(super) fn arrived(vector: u16) {
    processors::this().interrupted(Reason::Device);
    Wakes.raise(vector);
}

/// Returns the number of the device's interrupts so far, by vector.
///
/// They are not set to zero for another user of the device: an interrupt that nobody has waited for may have left the
/// line masked, and the library lets it through again when it finds that the count has changed.
pub(super) fn counts() -> [u64; VECTORS] {
    COUNTS.each_ref().map(|count| count.load(Ordering::SeqCst))
}

/// Waits for the interrupts that [`arrived`] counts.
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

    fn raise(&self, vector: u16) {
        if let Some(count) = COUNTS.get(usize::from(vector)) {
            count.fetch_add(1, Ordering::SeqCst);
            Event.wake_all();
        }
    }

    fn rearm(&self) {
        arch::rearm_line();
    }
}
