//! Requests that came when every slot of their thread was taken, copied into ordinary memory, oldest first.
//!
//! They are bounded; beyond that a thread without a slot reads nothing more. Lock: `requests`, held for a moment; that nothing
//! waits, which is nearly always so, is seen without it.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use transom_wire::header::InHeader;

/// Requests of all threads. Each stands for a thread of some program that waits.
const COUNT_MAX: usize = 4096;
/// Bytes of them, most of which are the data of WRITEs.
const BYTES_MAX: usize = 64 << 20;

/// A request that waits for a slot of its thread.
pub(super) struct Parked {
    /// Whose it is: by its descriptor the answer goes.
    pub(super) lane: usize,
    pub(super) header: InHeader,
    pub(super) message: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Backlog {
    requests: Mutex<Vec<Parked>>,
    /// Of what `requests` holds: stored under its lock, read without.
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl Backlog {
    /// Whether there is room for another request, of any length.
    pub(super) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < COUNT_MAX && self.bytes.load(Ordering::Relaxed) < BYTES_MAX
    }

    pub(super) fn put(&self, request: Parked) {
        let mut requests = self.requests.lock();
        self.bytes.fetch_add(request.message.len(), Ordering::Relaxed);
        requests.push(request);
        self.count.store(requests.len(), Ordering::Release);
    }

    /// The oldest request of thread `lane`.
    pub(super) fn take_of(&self, lane: usize) -> Option<Parked> {
        self.take(|parked| parked.lane == lane)
    }

    /// The request with this number.
    pub(super) fn take_named(&self, unique: u64) -> Option<Parked> {
        self.take(|parked| parked.header.unique.get() == unique)
    }

    fn take(&self, is_wanted: impl Fn(&Parked) -> bool) -> Option<Parked> {
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

    fn request(lane: usize, unique: u64, len: usize) -> Parked {
        let header = InHeader { unique: unique.into(), ..InHeader::new_zeroed() };
        Parked { lane, header, message: vec![0; len] }
    }

    #[test]
    fn a_thread_gets_its_own_requests_oldest_first() {
        let backlog = Backlog::default();
        [(0, 2), (1, 4), (0, 6)].into_iter().for_each(|(lane, unique)| backlog.put(request(lane, unique, 40)));
        let taken = |lane| backlog.take_of(lane).map(|parked| parked.header.unique.get());
        assert_eq!([taken(0), taken(0), taken(0), taken(1)], [Some(2), Some(6), None, Some(4)]);
    }

    #[test]
    fn a_request_that_is_interrupted_is_taken_out_whosever_it_is() {
        let backlog = Backlog::default();
        backlog.put(request(3, 8, 40));
        assert!(backlog.take_named(10).is_none());
        assert_eq!(backlog.take_named(8).map(|parked| parked.lane), Some(3));
        assert!(backlog.take_of(3).is_none());
    }

    #[test]
    fn there_is_room_until_there_are_as_many_requests_or_bytes_as_may_be() {
        let backlog = Backlog::default();
        (0..COUNT_MAX as u64).for_each(|unique| backlog.put(request(0, unique, 1)));
        assert!(!backlog.has_room());
        assert!(backlog.take_of(0).is_some() && backlog.has_room());
        backlog.put(request(0, 1, BYTES_MAX));
        assert!(!backlog.has_room());
    }
}
