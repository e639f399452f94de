//! Requests that came when every slot of their worker was taken, copied into private memory, oldest first.
//!
//! Their number and size are bounded; beyond that a worker without a free slot stops reading. Lock: `requests`, held
//! for a moment; an empty backlog, the usual case, is seen without it.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use transom_wire::header::InHeader;

/// The most requests of all workers together. For each, a thread of some program waits.
const COUNT_MAX: usize = 4096;
/// The most bytes of all requests together. Most are data of WRITEs.
const BYTES_MAX: usize = 64 << 20;

/// A request that waits for a slot of its worker.
pub(super) struct ParkedRequest {
    /// The worker that read it, through whose descriptor the reply must go.
    pub(super) worker: usize,
    pub(super) header: InHeader,
    pub(super) message: Vec<u8>,
}

/// The requests of all workers that wait for slots.
#[derive(Default)]
pub(super) struct Backlog {
    requests: Mutex<Vec<ParkedRequest>>,
    /// Requests in `requests`, and below their bytes: stored under its lock, read without.
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Returns whether there is room for another request, of any length.
    pub(super) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < COUNT_MAX && self.bytes.load(Ordering::Relaxed) < BYTES_MAX
    }

    /// Adds a request, also beyond the bounds.
    pub(super) fn put(&self, request: ParkedRequest) {
        let mut requests = self.requests.lock();
        self.bytes.fetch_add(request.message.len(), Ordering::Relaxed);
        requests.push(request);
        self.count.store(requests.len(), Ordering::Release);
    }

    /// Removes and returns the oldest request of `worker`.
    pub(super) fn take_of(&self, worker: usize) -> Option<ParkedRequest> {
        self.take(|parked| parked.worker == worker)
    }

    /// Removes and returns the request with the number `unique`.
    pub(super) fn take_named(&self, unique: u64) -> Option<ParkedRequest> {
        self.take(|parked| parked.header.unique.get() == unique)
    }

    fn take(&self, is_wanted: impl Fn(&ParkedRequest) -> bool) -> Option<ParkedRequest> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut requests = self.requests.lock();
        let found = requests.iter().position(is_wanted).map(|at| requests.remove(at))?;
        self.count.store(requests.len(), Ordering::Release);
        self.bytes.fetch_sub(found.message.len(), Ordering::Relaxed);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn request(worker: usize, unique: u64, len: usize) -> ParkedRequest {
        let header = InHeader { unique: unique.into(), ..InHeader::new_zeroed() };
        ParkedRequest { worker, header, message: vec![0; len] }
    }

    #[test]
    fn a_worker_gets_its_own_requests_oldest_first() {
        let backlog = Backlog::default();
        [(0, 2), (1, 4), (0, 6)].into_iter().for_each(|(worker, unique)| backlog.put(request(worker, unique, 40)));
        let taken = |worker| backlog.take_of(worker).map(|parked| parked.header.unique.get());
        assert_eq!([taken(0), taken(0), taken(0), taken(1)], [Some(2), Some(6), None, Some(4)]);
    }

    #[test]
    fn an_interrupted_request_is_found_whichever_worker_read_it() {
        let backlog = Backlog::default();
        backlog.put(request(3, 8, 40));
        assert!(backlog.take_named(10).is_none());
        assert_eq!(backlog.take_named(8).map(|parked| parked.worker), Some(3));
        assert!(backlog.take_of(3).is_none());
    }

    #[test]
    fn there_is_room_until_the_number_or_the_size_of_requests_reaches_its_bound() {
        let backlog = Backlog::default();
        (0..COUNT_MAX as u64).for_each(|unique| backlog.put(request(0, unique, 1)));
        assert!(!backlog.has_room());
        assert!(backlog.take_of(0).is_some() && backlog.has_room());
        backlog.put(request(0, 1, BYTES_MAX));
        assert!(!backlog.has_room());
    }
}
