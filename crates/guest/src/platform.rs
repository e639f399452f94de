//! What the library asks of the system that it runs in: locks, waiting, a clock and, where there are any, threads.
//!
//! A small kernel without threads implements [`Event::wait`] as a loop around its condition and needs nothing else.

use alloc::boxed::Box;

pub use crate::sync::rank::Held;

/// The system underneath.
pub trait Platform: Send + Sync + 'static {
    /// Guards short sections that neither block nor wait for the device: a spin lock in a kernel, a futex in a process.
    type RawMutex: lock_api::RawMutex + Send + Sync;

    /// What a thread waits on until another, or an interrupt, has done something.
    type Event: Event;

    /// A clock that never goes back, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Runs `task` beside its callers, for write-back and read-ahead.
    ///
    /// Gives the task back where there are no threads: the library then does that work in its callers.
    fn spawn(&self, name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>>;

    /// Whether nobody but the device does anything while a caller waits: what only another caller could give back (room
    /// in a pool, a lock on a file) is then an error at once, where it would be waited for in vain.
    fn is_single_threaded(&self) -> bool {
        false
    }

    /// Lets another thread have the processor, if one waits for it: called by who polls, now and then. The other may be
    /// who is polled for. Systems with a processor for each thread leave it as it is.
    fn yield_now(&self) {}

    /// Lends what the calling thread holds of the library's locks, by which debug builds check their order: a variable
    /// of the thread's own. Without one nothing is checked.
    fn with_held(_check: impl FnOnce(&Held)) {}
}

/// A place to wait. Wakes may be spurious and are never lost: one that comes between a look at the condition and the
/// sleep is noticed.
pub trait Event: Default + Send + Sync {
    /// Blocks until `is_done` says so, or until `deadline_ns` of the platform's clock; tells whether it was done.
    ///
    /// `is_done` is asked at least once, then after each wake. It takes no lock of the platform's [`Event`]s.
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool;

    /// Makes every waiter look at its condition again.
    fn wake_all(&self);
}
