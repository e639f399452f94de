//! The platform of the guest library: a single thread, which polls or, where there are interrupts, halts.

use alloc::boxed::Box;

use spinning_top::RawSpinlock;
use transom_guest::{Platform, platform};

use super::arch;

/// The bare machine.
pub(super) struct Bare;

impl Platform for Bare {
    type RawMutex = RawSpinlock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        arch::now_ns()
    }

    fn spawn(&self, _name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn is_single_threaded(&self) -> bool {
        true
    }
}

/// An event whose waiter checks its condition whenever the processor has nothing else to do: there is only one waiter.
#[derive(Default)]
pub(super) struct Event;

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        loop {
            // An interrupt between the check and the pause is delivered in the pause, and ends it.
            let quiet = arch::Quiet::begin();
            if is_done() {
                return true;
            }
            if deadline_ns.is_some_and(|deadline_ns| arch::now_ns() >= deadline_ns) {
                return false;
            }
            quiet.pause();
        }
    }

    /// The interrupt whose handler calls this has already ended the waiter's pause.
    fn wake_all(&self) {}
}
