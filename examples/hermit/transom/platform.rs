//! Hermit's tasks, its scheduler and its clock, for the library.

#![allow(unsafe_code, reason = "passes a task to Hermit's scheduler, and implements a lock")]

use alloc::boxed::Box;

use hermit_sync::OnceCell;
use transom_guest::{Platform, platform};

use crate::arch::core_local::core_scheduler;
use crate::arch::processor;
use crate::config::USER_STACK_SIZE;
use crate::scheduler::PerCoreSchedulerExt;
use crate::scheduler::task::NORMAL_PRIO;
use crate::synch::semaphore::Semaphore;

/// The kernel.
pub(super) struct Hermit;

impl Platform for Hermit {
    type RawMutex = RawLock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        // Hermit looks for the frequency in the device tree each time.
        static FREQUENCY_MHZ: OnceCell<u64> = OnceCell::new();
        let frequency_mhz = *FREQUENCY_MHZ.get_or_init(|| processor::get_frequency().into());
        processor::get_timestamp() * 1000 / frequency_mhz
    }

    fn spawn(&self, _name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        let task = Box::into_raw(Box::new(task));
        // SAFETY: `run` takes over the pointer of a `Task`, which nobody else has.
        unsafe { crate::scheduler::spawn(run, task.expose_provenance(), NORMAL_PRIO, USER_STACK_SIZE, -1) };
        Ok(())
    }

    fn yield_now(&self) {
        core_scheduler().reschedule();
    }
}

type Task = Box<dyn FnOnce() + Send>;

unsafe extern "C" fn run(task: usize) {
    // SAFETY: `spawn` has made the pointer of a box, and passes it on once.
    let task = unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Task>(task)) };
    task();
}

/// A lock whose waiters sleep: a task that holds one may be interrupted, and another one run.
pub(super) struct RawLock(Semaphore);

// SAFETY: the semaphore has one unit, which a holder keeps until it unlocks.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(Semaphore::new(1));

    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        self.0.acquire(None);
    }

    fn try_lock(&self) -> bool {
        self.0.try_acquire()
    }

    unsafe fn unlock(&self) {
        self.0.release();
    }
}

/// An event whose waiters poll, and let other tasks run between two looks.
#[derive(Default)]
pub(super) struct Event;

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        loop {
            if is_done() {
                return true;
            }
            if deadline_ns.is_some_and(|deadline_ns| Hermit.now_ns() >= deadline_ns) {
                return false;
            }
            core_scheduler().reschedule();
        }
    }

    fn wake_all(&self) {}
}
