//! What the library needs from the system that it runs in: locks, waiting, a clock and, if available, threads.
//!
//! A small kernel without threads implements [`Event::wait`] as a loop around its condition and needs nothing else.

use alloc::boxed::Box;

pub use crate::{page_size::PageSize, sync::rank::Held};

/// The system that the library runs in.
pub trait Platform: Send + Sync + 'static {
    /// The size of the guest's pages, which mapped files need (see [`dax`](crate::dax)) and nothing else.
    const PAGE_SIZE: PageSize = PageSize::Kib4;

    /// Whether volumes may use the windows of their devices. If not, a window that is passed is ignored, no file is
    /// mapped, and the compiler leaves out what serves that.
    const HAS_WINDOWS: bool = true;

    /// Guards short sections that neither block nor wait for the device: a spin lock in a kernel, a futex in a process.
    type RawMutex: lock_api::RawMutex + Send + Sync;

    /// What a thread waits on until another thread or an interrupt handler signals it.
    type Event: Event;

    /// Returns the time of a monotonic clock, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Runs `task` concurrently with its callers, for write-back and read-ahead.
    ///
    /// Returns the task if there are no threads; the library then does that work in its callers.
    fn spawn(&self, name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>>;

    /// Returns whether only the device makes progress while a caller waits. Waiting for something that only another
    /// caller could release (room in a pool, a lock on a file) then fails at once, because it would never end.
    fn is_single_threaded(&self) -> bool {
        false
    }

    /// Returns how many processors run the threads that use a device, 16 by default, or 1 for a single thread.
    ///
    /// A device gets no more request queues than that unless
    /// [`Settings::request_queues_max`](crate::device::Settings::request_queues_max) says otherwise. Threads that share
    /// a processor do best with one queue, whose requests the device then serves together.
    fn processors(&self) -> u16 {
        if self.is_single_threaded() { 1 } else { 16 }
    }

    /// Yields the processor to another runnable thread. Called from time to time by a thread that polls; the thread
    /// that runs instead may be the one it polls for. Systems with a processor for each thread keep the default.
    fn yield_now(&self) {}

    /// Passes the calling thread's record of held library locks to `check`, with which debug builds check the lock
    /// order. The record is a thread-local variable. Without one nothing is checked.
    fn with_held(_check: impl FnOnce(&Held)) {}
}

/// Something to wait on. Wake-ups may be spurious and are never lost: a wake-up between checking the condition and
/// going to sleep is noticed.
pub trait Event: Default + Send + Sync {
    /// Blocks until `is_done` returns true, or until `deadline_ns` of the platform's clock. Returns the last value of
    /// `is_done`.
    ///
    /// `is_done` is called at least once, then after each wake-up. It takes no lock of the platform's [`Event`]s.
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool;

    /// Makes every waiter check its condition again.
    fn wake_all(&self);
}
