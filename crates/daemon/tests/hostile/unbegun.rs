//! Requests that were taken off the ring and have not begun: how many there may be, and what a stop does with them.
//!
//! The file system holds up whatever waits, so that the pool's threads are busy and everything else is queued.

use std::thread;

use transom_conformance::memfs::MemFs;
use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    message::{HANG_AFTER, request, u64s},
    queue::Queue,
    wake::{Wake, WakeKind},
};
use transom_wire::Opcode;
use zerocopy::IntoBytes;

use crate::host::{Daemon, POOL_THREADS, REQUEST, use_it};

/// A daemon whose LOOKUPs all go to the pool.
fn daemon() -> Daemon {
    Daemon::with(MemFs::default().deferring(1), std::time::Duration::ZERO)
}

/// A session whose ring is full of LOOKUPs; the pool's threads have begun one each, and are held up.
fn full_of_slow(daemon: &Daemon, options: Options) -> (FrontEnd, Session<Queue>, usize) {
    let (front_end, mut session) = daemon.session_with(options);
    daemon.file_system().stall(true);
    let begun = daemon.file_system().stalled().begun;
    let mut count = 0;
    loop {
        let header = session.header(Opcode::Lookup as u32, 1, 7);
        if session.exchange.submit(&[header.as_bytes(), b"absent\0"], &[16, 128]).is_none() {
            break;
        }
        count += 1;
    }
    session.exchange.kick.wake().unwrap();
    wait_until(|| daemon.file_system().stalled().now == POOL_THREADS);
    assert_eq!(daemon.file_system().stalled().begun, begun + POOL_THREADS);
    (front_end, session, count)
}

/// Lets what is held up go on when it is dropped, also by a test that fails.
struct GoOn<'a>(&'a Daemon);

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.file_system().stall(false);
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun_at = std::time::Instant::now();
    while !is_so() {
        assert!(begun_at.elapsed() < HANG_AFTER);
        thread::yield_now();
    }
}

/// Ends the ring's requests by `end`, which waits for those that have begun; returns how many were begun in all.
fn begun_until(daemon: &Daemon, end: impl FnOnce() + Send) -> usize {
    let fs = daemon.file_system();
    let (begun, wakes) = (fs.stalled().begun - POOL_THREADS, fs.stalled().wakes);
    thread::scope(|scope| {
        let _go_on = GoOn(daemon);
        scope.spawn(end);
        wait_until(|| fs.stalled().wakes > wakes);
    });
    wait_until(|| fs.stalled().now == 0);
    fs.stalled().begun - begun
}

#[test]
fn a_reset_drops_what_has_not_begun() {
    let daemon = daemon();
    for _ in 0..20 {
        let (front_end, session, count) = full_of_slow(&daemon, Options::default());
        assert_eq!(count, 64);
        assert_eq!(begun_until(&daemon, || front_end.reset().unwrap()), POOL_THREADS);
        drop((front_end, session));
        daemon.is_healthy();
    }
}

#[test]
fn a_departure_drops_what_has_not_begun() {
    let daemon = daemon();
    for _ in 0..20 {
        let (front_end, session, _) = full_of_slow(&daemon, Options::default());
        assert_eq!(begun_until(&daemon, || drop((front_end, session))), POOL_THREADS);
        daemon.is_healthy();
    }
}

/// VHOST_USER_GET_VRING_BASE drains the ring: the front end goes on behind the requests that were taken.
#[test]
fn a_stop_drops_nothing() {
    let daemon = daemon();
    let (front_end, mut session, count) = full_of_slow(&daemon, Options::default());
    thread::scope(|scope| {
        let stop = scope.spawn(|| front_end.stop_queue(REQUEST).unwrap());
        daemon.file_system().stall(false);
        let base = stop.join().unwrap();
        assert_eq!(session.exchange.ring.used_idx(), base, "what was taken is answered");
        front_end.restart_queue(REQUEST, &session.exchange, base).unwrap();
    });
    session.exchange.kick.wake().unwrap();
    session.exchange.wait_for_all().unwrap();
    assert_eq!(daemon.file_system().stalled().begun, count, "each request is served once");
    drop((front_end, session));
    daemon.is_healthy();
}

#[test]
fn a_chain_offered_again_before_it_is_completed_breaks_its_ring_alone() {
    let daemon = daemon();
    let (front_end, session, _) = full_of_slow(&daemon, Options::default());
    let mut queue = session.exchange;
    let broken = Wake::new(WakeKind::EventFd).unwrap();
    let number = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_ERR, &number, &[broken.waking_end()]).unwrap();
    // 1. All chains are the device's; any of them will do.
    queue.ring.publish(7);
    queue.kick.wake().unwrap();
    assert!(broken.wait(HANG_AFTER).unwrap());
    // 2. The other queue goes on, as far as its requests do not wait.
    let mut other = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    other.getattr(1, None).unwrap();
    // 3. A stop of the broken queue waits for what has begun; the others are dropped.
    let begun = daemon.file_system().stalled().begun;
    daemon.file_system().stall(false);
    front_end.stop_queue(REQUEST).unwrap();
    assert_eq!(daemon.file_system().stalled().begun, begun);
    // 4. Set up anew, the queue takes every head again.
    let mut session = Session::new(front_end.start_queue(REQUEST).unwrap());
    for _ in 0..3 {
        use_it(&mut session);
    }
    drop((front_end, session, queue, other));
    daemon.is_healthy();
}

#[test]
fn a_large_ring_is_not_taken_at_once() {
    /// As many requests of one queue are in flight at the most.
    const REQUESTS_MAX: u64 = 1024;
    let daemon = daemon();
    let options = Options { queue_size: 4096, ram_bytes: 64 << 20, ..Options::default() };
    let (front_end, mut session, count) = full_of_slow(&daemon, options);
    assert_eq!(count, 4096);
    wait_until(|| daemon.queue_depth(REQUEST) == REQUESTS_MAX);
    // Those that end make room for others, and all are answered.
    daemon.file_system().stall(false);
    session.exchange.wait_for_all().unwrap();
    assert_eq!(daemon.file_system().stalled().begun, count);
    drop((front_end, session));
    daemon.is_healthy();
}

#[test]
fn a_full_ring_that_waits_for_room_is_left_at_once() {
    let daemon = daemon();
    let options = Options { queue_size: 4096, ram_bytes: 64 << 20, ..Options::default() };
    let (front_end, session, _) = full_of_slow(&daemon, options);
    wait_until(|| daemon.queue_depth(REQUEST) == 1024);
    daemon.file_system().stall(false);
    drop((front_end, session));
    daemon.is_healthy();
}
