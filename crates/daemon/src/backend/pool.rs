//! Threads beside the queues' workers, for requests that wait.
//!
//! The pool has a fixed number of threads, each started when there is a first job for it; jobs are at most as many as
//! the rings have entries. A request that waits for another lock owner gets a thread of its own, up to
//! [`WAITERS_MAX`].

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use crossbeam_channel::{Receiver, Sender, unbounded};

/// Requests that may wait for a lock at the same time; a guest that wants more gets ENOLCK. Each holds a thread.
pub(super) const WAITERS_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Pool {
    threads_max: usize,
    sender: Sender<Job>,
    receiver: Receiver<Job>,
    threads: Mutex<usize>,
    idle: Arc<AtomicUsize>,
    waiters: Arc<AtomicUsize>,
}

/// No thread could be had.
pub(super) struct Refused;

impl Pool {
    pub(super) fn new(threads_max: usize) -> Self {
        let (sender, receiver) = unbounded();
        Self { threads_max, sender, receiver, threads: Mutex::new(0), idle: Arc::default(), waiters: Arc::default() }
    }

    /// Runs `job` on a thread of the pool. Refused where the pool has no thread and none can be started.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        if self.idle.load(Ordering::Acquire) == 0 {
            self.grow()?;
        }
        self.sender.send(Box::new(job)).map_err(|_| Refused)
    }

    /// Runs `job` on a thread of its own.
    pub(super) fn wait(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
        if self.waiters.fetch_add(1, Ordering::AcqRel) >= WAITERS_MAX {
            self.waiters.fetch_sub(1, Ordering::AcqRel);
            return Err(Refused);
        }
        let waiters = self.waiters.clone();
        let started = std::thread::Builder::new().name("lock-waiter".into()).spawn(move || {
            job();
            waiters.fetch_sub(1, Ordering::AcqRel);
        });
        started.map(drop).map_err(|_| {
            self.waiters.fetch_sub(1, Ordering::AcqRel);
            Refused
        })
    }

    fn grow(&self) -> Result<(), Refused> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if *threads == self.threads_max {
            return if *threads == 0 { Err(Refused) } else { Ok(()) };
        }
        let (receiver, idle) = (self.receiver.clone(), self.idle.clone());
        let started = std::thread::Builder::new().name("pool".into()).spawn(move || {
            loop {
                idle.fetch_add(1, Ordering::AcqRel);
                let job = receiver.recv();
                idle.fetch_sub(1, Ordering::AcqRel);
                match job {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        });
        match started {
            Ok(_) => *threads += 1,
            Err(_) if *threads == 0 => return Err(Refused),
            Err(_) => {}
        }
        Ok(())
    }
}
