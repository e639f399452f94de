//! The platform of a kernel in C: locks, events and a clock over its [`table`].

#![expect(unsafe_code, reason = "calls functions of C, and implements a lock")]

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_api::GuardSend;
use transom_guest::{Platform, platform};

use crate::table::{relax, table};

/// The kernel that has set the table.
pub(crate) struct Kernel;

impl Platform for Kernel {
    /// The header has no way to pass one.
    const HAS_WINDOWS: bool = false;

    type RawMutex = RawLock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        let table = table();
        // SAFETY: a function of the table, with its context.
        table.now_ns.map_or(0, |now_ns| unsafe { now_ns(table.context) })
    }

    fn spawn(&self, _name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn is_single_threaded(&self) -> bool {
        table().is_single_threaded != 0
    }

    fn yield_now(&self) {
        relax();
    }
}

/// A spin lock, whose waiters let others run.
pub(crate) struct RawLock(AtomicBool);

// SAFETY: the swap succeeds for one thread until it stores false again.
unsafe impl lock_api::RawMutex for RawLock {
    const INIT: Self = Self(AtomicBool::new(false));

    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            while self.0.load(Ordering::Relaxed) {
                relax();
            }
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An event: a word that changes with each wake.
#[derive(Default)]
pub(crate) struct Event(AtomicU32);

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        let table = table();
        loop {
            // Read first: a wake after the check changes it, and then the wait ends at once.
            let seen = self.0.load(Ordering::SeqCst);
            if is_done() {
                return true;
            }
            if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= Kernel.now_ns()) {
                return false;
            }
            match table.wait {
                // SAFETY: a function of the table, with its context, and a word that outlives the call.
                Some(wait) => unsafe {
                    wait(table.context, self.0.as_ptr(), seen, deadline_ns.unwrap_or(u64::MAX));
                },
                None => relax(),
            }
        }
    }

    fn wake_all(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let table = table();
        if let Some(wake) = table.wake {
            // SAFETY: a function of the table, with its context, and a word that outlives the call.
            unsafe { wake(table.context, self.0.as_ptr()) };
        }
    }
}
