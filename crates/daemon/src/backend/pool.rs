//! Threads beside the queues' workers, for requests that wait.
//!
//! The pool has a fixed number of threads, each started when a job finds none idle; jobs are at most as many as requests
//! may be in flight. A request that waits for another lock owner gets a thread of its own, up to [`WAITERS_MAX`].

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Requests that may wait for a lock at the same time; a guest that wants more gets ENOLCK. Each holds a thread.
pub(super) const WAITERS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The pool; dropping it ends its threads once the jobs are done.
pub(super) struct Pool {
    threads_max: usize,
    shared: Arc<Shared>,
    waiters: Arc<AtomicUsize>,
}

/// How busy a pool is.
#[derive(Default)]
pub(super) struct Usage {
    pub(super) threads: u64,
    pub(super) busy: u64,
    /// Jobs that no thread has begun.
    pub(super) queued: u64,
}

/// No thread could be had.
pub(super) struct Refused;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_job: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Pool {
    pub(super) fn new(threads_max: usize) -> Self {
        Self { threads_max, shared: Arc::default(), waiters: Arc::default() }
    }

    /// Runs `job` on a thread of the pool. Refused where the pool has no thread and none can be started.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= state.idle && state.threads < self.threads_max {
            let shared = self.shared.clone();
            match thread::Builder::new().name("pool".into()).spawn(move || shared.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::warn!(%error, threads = state.threads, "cannot start a thread of the pool"),
            }
        }
        if state.threads == 0 {
            return Err(Refused);
        }
        state.jobs.push_back(Box::new(job));
        self.shared.has_job.notify_one();
        Ok(())
    }

    /// How busy it is now.
    pub(super) fn usage(&self) -> Usage {
        let state = self.shared.lock();
        let busy = state.threads - state.idle;
        Usage { threads: state.threads as u64, busy: busy as u64, queued: state.jobs.len() as u64 }
    }

    /// Runs `job` on a thread of its own.
    pub(super) fn wait(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        let place = WaiterPlace::take(&self.waiters).ok_or(Refused)?;
        let started = thread::Builder::new().name("lock-waiter".into()).spawn(move || {
            job();
            drop(place);
        });
        started.map(drop).map_err(|_| Refused)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.has_job.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread of the pool does.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
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

/// One of the [`WAITERS_MAX`] places, given back on drop.
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

    #[test]
    fn jobs_run_side_by_side_up_to_the_threads_and_none_is_lost() {
        let pool = Pool::new(3);
        let (together, (sender, receiver)) = (Arc::new(Barrier::new(3)), mpsc::channel());
        for number in 0..3 {
            let (together, sender) = (together.clone(), sender.clone());
            assert!(
                pool.run(move || {
                    together.wait();
                    sender.send(number).unwrap();
                })
                .is_ok()
            );
        }
        for number in 3..50 {
            let sender = sender.clone();
            assert!(pool.run(move || sender.send(number).unwrap()).is_ok());
        }
        drop(pool);
        drop(sender);
        let mut numbers: Vec<i32> = receiver.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_pool_without_threads_refuses() {
        assert!(Pool::new(0).run(|| ()).is_err());
    }

    #[test]
    fn waiters_are_bounded_and_their_places_come_back() {
        let pool = Pool::new(0);
        let release = Arc::new(Barrier::new(WAITERS_MAX + 1));
        for _ in 0..WAITERS_MAX {
            let release = release.clone();
            assert!(pool.wait(move || _ = release.wait()).is_ok());
        }
        assert!(pool.wait(|| ()).is_err());
        release.wait();
        while pool.wait(|| ()).is_err() {
            thread::yield_now();
        }
    }
}
