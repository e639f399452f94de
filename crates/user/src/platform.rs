//! The platform of the guest library on Linux: futexes, the monotonic clock, threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering, fence},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    thread::{
        futex::{self, Flags},
        sched_yield,
    },
    time::{ClockId, Timespec, clock_gettime},
};
use transom_guest::platform::{self, Held, PageSize, Platform};

/// Bytes of a page.
pub(crate) const PAGE_LEN: u64 = Process::PAGE_SIZE.bytes();
/// Number of pages in 2 MiB.
pub(crate) const PAGES_PER_HUGE: u64 = Process::PAGE_SIZE.pages_per_huge();

/// A process on Linux.
#[derive(Debug, Default, Clone, Copy)]
pub struct Process;

impl Platform for Process {
    /// That of x86-64, the only architecture of this crate.
    const PAGE_SIZE: PageSize = PageSize::Kib4;

    type RawMutex = parking_lot::RawMutex;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn spawn(&self, name: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        // Taken by the thread, or taken back if no thread can be started.
        let task = Arc::new(Mutex::new(Some(task)));
        let of_thread = Arc::clone(&task);
        let run = move || {
            let task = of_thread.lock().take();
            if let Some(task) = task {
                task();
            }
        };
        match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
            Ok(_) => Ok(()),
            Err(_) => Err(task.lock().take().expect("no thread was started that could have taken the task")),
        }
    }

    /// Returns the number of processors that the calling thread may use, by its affinity and its control group's quota.
    fn processors(&self) -> u16 {
        std::thread::available_parallelism().map_or(1, |count| count.get().min(u16::MAX.into()) as u16)
    }

    fn yield_now(&self) {
        sched_yield();
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

/// Returns CLOCK_MONOTONIC in nanoseconds: the clock of every deadline in this crate.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the time from now to `deadline_ns` of [`now_ns`], or zero if that has passed.
pub fn until(deadline_ns: u64) -> Duration {
    Duration::from_nanos(deadline_ns.saturating_sub(now_ns()))
}

/// A futex that counts wakes, so that a wake between the check of the condition and the sleep is not lost.
///
/// A wake without waiters costs a fence and a load.
#[derive(Debug, Default)]
pub struct Event {
    waiters: AtomicU32,
    wakes: AtomicU32,
}

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        if is_done() {
            return true;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Either the waker sees this waiter, or this waiter sees what the waker did before; see `wake_all`.
        fence(Ordering::SeqCst);
        let is_done = loop {
            let wakes = self.wakes.load(Ordering::SeqCst);
            if is_done() {
                break true;
            }
            let timeout = deadline_ns.map(until);
            if timeout == Some(Duration::ZERO) {
                break false;
            }
            let timeout = timeout.map(timespec);
            // After EAGAIN, EINTR or ETIMEDOUT, the condition is checked again.
            let _ = futex::wait(&self.wakes, Flags::PRIVATE, wakes, timeout.as_ref());
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        is_done
    }

    fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.wakes.fetch_add(1, Ordering::SeqCst);
        // Fails only for an invalid address.
        let _ = futex::wake(&self.wakes, Flags::PRIVATE, i32::MAX as u32);
    }
}

/// Returns `duration` as a `Timespec`.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{atomic::AtomicU64, mpsc},
        thread,
    };

    use platform::Event as _;

    use super::*;

    #[test]
    fn two_threads_that_wait_for_each_other_never_miss_a_wake() {
        const TURNS: u64 = 20_000;
        let (turn, event) = (AtomicU64::new(0), Event::default());
        let play = |parity| {
            for round in 0..TURNS {
                let mine = 2 * round + parity;
                assert!(event.wait(&mut || turn.load(Ordering::Acquire) == mine, None));
                turn.store(mine + 1, Ordering::Release);
                event.wake_all();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(0));
            play(1);
        });
        assert_eq!(turn.load(Ordering::Relaxed), 2 * TURNS);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_without_the_condition() {
        let event = Event::default();
        let deadline_ns = now_ns() + 1_000_000;
        assert!(!event.wait(&mut || false, Some(deadline_ns)));
        assert!(now_ns() >= deadline_ns);
    }

    #[test]
    fn a_spawned_task_runs() {
        let (sender, receiver) = mpsc::channel();
        assert!(Process.spawn("task", Box::new(move || sender.send(7).unwrap())).is_ok());
        assert_eq!(receiver.recv(), Ok(7));
    }
}
