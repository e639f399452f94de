//! [`Readers`]: which workers have read a request that they have not dealt with yet.
//!
//! The kernel hands requests out in order, each to one worker. What a worker decides about a request can depend on an
//! earlier one, such as a RELEASE, which another worker has read and not looked at yet.

use std::sync::atomic::{AtomicU64, Ordering};

/// For each worker, a number that is odd from before it reads a request until it has dealt with it.
pub(super) struct Readers(Box<[AtomicU64]>);

impl Readers {
    /// Creates the numbers of `threads` workers.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| AtomicU64::new(0)).collect())
    }

    /// To be called before `thread` reads a request.
    pub(super) fn begin(&self, thread: usize) {
        self.0[thread].fetch_or(1, Ordering::SeqCst);
    }

    /// To be called once `thread` has dealt with the request that it read, or found none.
    pub(super) fn end(&self, thread: usize) {
        let count = &self.0[thread];
        if count.load(Ordering::Relaxed) & 1 != 0 {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until all requests that were read before the one of `thread` have been dealt with.
    ///
    /// Several workers may wait at the same time: each counts as having dealt with its own request.
    pub(super) fn wait_for_others(&self, thread: usize) {
        self.end(thread);
        for count in &self.0 {
            let begun = count.load(Ordering::SeqCst);
            while begun & 1 != 0 && count.load(Ordering::SeqCst) == begun {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_read_is_waited_for_until_it_is_done() {
        let readers = Readers::new(3);
        readers.begin(0);
        readers.begin(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| readers.wait_for_others(0));
            assert!(!waiter.is_finished());
            readers.end(1);
            waiter.join().unwrap();
        });
        // Nobody is waited for twice, nor for a request that is read later.
        readers.wait_for_others(0);
        assert_eq!(readers.0.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>(), [2, 2, 0]);
    }

    #[test]
    fn workers_that_wait_for_each_other_do_not_deadlock() {
        let readers = Readers::new(2);
        (0..2).for_each(|thread| readers.begin(thread));
        std::thread::scope(|scope| {
            (0..2).for_each(|thread| {
                drop(scope.spawn({
                    let readers = &readers;
                    move || readers.wait_for_others(thread)
                }))
            });
        });
    }
}
