//! Threads beside the queues' workers, for requests that block.
//!
//! The pool has a fixed number of threads, each started when a job finds none idle. The jobs are bounded by the
//! requests that may be in flight. A request that waits for another lock owner gets a thread of its own, up to
//! [`WAITERS_MAX`].

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use transom_host::server::Scratch;

/// The most requests that wait for a lock at the same time; further ones fail with ENOLCK. Each occupies a thread.
pub(super) const WAITERS_MAX: usize = 256;

/// A job for the pool.
pub(super) trait Job: Send + 'static {
    /// Runs the job. `scratch` is memory that the thread keeps from job to job.
    fn run(self, scratch: &mut Scratch);
}

/// A pool of threads. Dropping it ends the threads once all jobs are done.
pub(super) struct Pool<J> {
    threads_max: usize,
    shared: Arc<Shared<J>>,
    waiters: Arc<AtomicUsize>,
}

/// The load of a pool.
#[derive(Default)]
pub(super) struct Usage {
    pub(super) threads: u64,
    pub(super) busy: u64,
    /// Jobs that no thread has begun.
    pub(super) queued: u64,
}

/// A source of [`Usage`].
pub(super) trait Busy: Send + Sync {
    /// Returns the current load.
    fn usage(&self) -> Usage;
}

struct Shared<J> {
    state: Mutex<State<J>>,
    has_job: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl<J: Job> Pool<J> {
    pub(super) fn new(threads_max: usize) -> Self {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, is_closed: false };
        let shared = Shared { state: Mutex::new(state), has_job: Condvar::new() };
        Self { threads_max, shared: Arc::new(shared), waiters: Arc::default() }
    }

    /// Runs `job` on a thread of the pool. Returns it if the pool has no thread and none can be started.
    pub(super) fn run(&self, job: J) -> Result<(), J> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= state.idle && state.threads < self.threads_max {
            let shared = self.shared.clone();
            match thread::Builder::new().name("pool".into()).spawn(move || shared.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::warn!(%error, threads = state.threads, "cannot start a pool thread"),
            }
        }
        if state.threads == 0 {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.shared.has_job.notify_one();
        Ok(())
    }

    /// Runs `job` on a thread of its own. Returns it if no thread is available.
    pub(super) fn wait(&self, job: J) -> Result<(), J> {
        let Some(place) = WaiterPlace::take(&self.waiters) else { return Err(job) };
        // If the thread cannot be started, the job must not be lost with its closure.
        let job = Arc::new(Mutex::new(Some(job)));
        let taken = job.clone();
        let take = |job: &Mutex<Option<J>>| job.lock().unwrap_or_else(PoisonError::into_inner).take();
        let started = thread::Builder::new().name("lock-waiter".into()).spawn(move || {
            if let Some(job) = take(&taken) {
                job.run(&mut Scratch::default());
            }
            drop(place);
        });
        match started {
            Ok(_) => Ok(()),
            Err(_) => take(&job).map_or(Ok(()), Err),
        }
    }
}

impl<J: Job> Busy for Pool<J> {
    fn usage(&self) -> Usage {
        let state = self.shared.lock();
        let busy = state.threads - state.idle;
        Usage { threads: state.threads as u64, busy: busy as u64, queued: state.jobs.len() as u64 }
    }
}

impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.has_job.notify_all();
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Job> Shared<J> {
    /// The main loop of a pool thread.
    fn serve(&self) {
        let mut scratch = Scratch::default();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job.run(&mut scratch);
                state = self.lock();
            } else if state.is_closed {
                return;
            } else {
                state.idle += 1;
                state = self.has_job.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// One of the [`WAITERS_MAX`] slots, released on drop.
struct WaiterPlace(Arc<AtomicUsize>);

impl WaiterPlace {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let take_one = |taken| (taken < WAITERS_MAX).then_some(taken + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_one).ok()?;
        Some(Self(count.clone()))
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, mpsc};

    use super::*;

    impl Job for Box<dyn FnOnce() + Send> {
        fn run(self, _: &mut Scratch) {
            self();
        }
    }

    fn pool(threads_max: usize) -> Pool<Box<dyn FnOnce() + Send>> {
        Pool::new(threads_max)
    }

    #[test]
    fn jobs_run_side_by_side_up_to_the_threads_and_none_is_lost() {
        let pool = pool(3);
        let (together, (sender, receiver)) = (Arc::new(Barrier::new(3)), mpsc::channel());
        for number in 0..3 {
            let (together, sender) = (together.clone(), sender.clone());
            assert!(
                pool.run(Box::new(move || {
                    together.wait();
                    sender.send(number).unwrap();
                }))
                .is_ok()
            );
        }
        for number in 3..50 {
            let sender = sender.clone();
            assert!(pool.run(Box::new(move || sender.send(number).unwrap())).is_ok());
        }
        drop(pool);
        drop(sender);
        let mut numbers: Vec<i32> = receiver.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_pool_without_threads_refuses() {
        assert!(pool(0).run(Box::new(|| ())).is_err());
    }

    #[test]
    fn waiters_are_bounded_and_their_places_come_back() {
        let pool = pool(0);
        let release = Arc::new(Barrier::new(WAITERS_MAX + 1));
        for _ in 0..WAITERS_MAX {
            let release = release.clone();
            assert!(pool.wait(Box::new(move || _ = release.wait())).is_ok());
        }
        assert!(pool.wait(Box::new(|| ())).is_err());
        release.wait();
        while pool.wait(Box::new(|| ())).is_err() {
            thread::yield_now();
        }
    }
}
