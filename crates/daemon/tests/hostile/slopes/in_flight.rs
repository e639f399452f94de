//! Requests that a guest does not wait for.

use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    message::{HANG_AFTER, request, u64s},
    queue::Queue,
    wake::{Wake, WakeKind},
};
use transom_wire::{
    Opcode,
    ops::{copy_file_range::CopyFileRangeIn, lk::LkIn},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    driver::{Request, submit},
    scaled,
    usage::{MEMORY_SLACK_KIB, THREADS_MAX, Usage},
};
use crate::host::{Daemon, REQUEST};

const RING: u16 = 256;

/// Bytes of a copy: long enough that requests come faster than the pool serves them.
const COPY_BYTES: u64 = 4 << 20;

/// Requests that may wait for a lock at a time, each with a thread of its own.
const LOCK_WAITERS_MAX: u64 = 256;

/// The daemon, a session on a ring of [`RING`] entries, and a copy that the pool serves.
fn slow_requests(daemon: &Daemon) -> (FrontEnd, Session<Queue>, Request) {
    std::fs::write(daemon.share().join("from"), vec![1; COPY_BYTES as usize]).unwrap();
    let (front_end, mut session) = daemon.session_with(Options { queue_size: RING, ..Options::default() });
    let from = session.lookup(1, b"from").unwrap().nodeid.get();
    let to = session.create(1, b"to", libc::O_RDWR as u32, 0o644).unwrap();
    let mut arg = CopyFileRangeIn::new_zeroed();
    arg.fh_in = session.open(from, libc::O_RDONLY as u32).unwrap().into();
    (arg.nodeid_out, arg.fh_out, arg.len) = (to.entry.nodeid, to.open.fh, COPY_BYTES.into());
    let request = Request::new(Opcode::CopyFileRange, from, arg.as_bytes());
    (front_end, session, request)
}

fn copies_done(daemon: &Daemon) -> u64 {
    daemon.metric("transom_operation_duration_seconds_count{operation=\"copy_file_range\"}")
}

/// The head that the available ring has last.
fn offered_last(queue: &Queue) -> u16 {
    let [_, avail, _] = queue.ring.addresses();
    queue.ram().load(avail + 4 + 2 * u64::from(queue.ring.next_avail().wrapping_sub(1) % RING))
}

/// Offers the chain `head` `count` times as fast as the device takes it; ends when the device says that the ring is
/// broken.
fn offer_again_and_again(queue: &mut Queue, head: u16, count: u64, broken: &Wake) {
    let [_, _, used] = queue.ring.addresses();
    let avail_event = used + 4 + 8 * u64::from(RING);
    for _ in 0..count {
        // The ring holds no more than its size; the device writes how far it has come before it sleeps.
        while queue.ring.next_avail().wrapping_sub(queue.ram().load::<u16>(avail_event)) >= RING {
            queue.kick.wake().unwrap();
            if broken.wait(std::time::Duration::ZERO).unwrap() {
                return;
            }
            std::thread::yield_now();
        }
        queue.ring.publish(head);
    }
    queue.kick.wake().unwrap();
}

#[test]
fn chains_offered_again_before_they_are_completed_take_nothing() {
    let daemon = Daemon::executable();
    let (front_end, mut session, request) = slow_requests(&daemon);
    let broken = Wake::new(WakeKind::EventFd).unwrap();
    let number = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_ERR, &number, &[broken.waking_end()]).unwrap();
    // 1. One chain that the device has, and offers it many times more.
    submit(&mut session, &request).unwrap();
    let head = offered_last(&session.exchange);
    session.exchange.kick.wake().unwrap();
    let mut queue = session.exchange;
    let before = Usage::of(&daemon);
    offer_again_and_again(&mut queue, head, scaled(4000), &broken);
    let depth = daemon.queue_depth(REQUEST);
    let after = Usage::of(&daemon);
    println!("{depth} requests in flight; {before:?}, then {after:?}");
    // 2. The daemon holds no more than the ring.
    assert!(depth <= u64::from(RING), "{depth} requests in flight on a ring of {RING}");
    assert!(daemon.metric("transom_pool_queued_requests") <= u64::from(RING));
    let growth = after.memory_kib.saturating_sub(before.memory_kib);
    assert!(growth <= MEMORY_SLACK_KIB, "requests in flight take {growth} KiB");
    // 3. A stop, and a departure, wait for what has begun and no more.
    let done = copies_done(&daemon);
    front_end.stop_queue(REQUEST).unwrap();
    assert!(copies_done(&daemon) - done <= u64::from(RING), "a stop waits for more than the ring holds");
    drop((front_end, queue));
    daemon.is_healthy();
}

#[test]
fn requests_that_wait_for_a_lock_meet_a_limit_and_a_stop_wakes_them_all() {
    let daemon = Daemon::executable_with(&["--posix-lock"]);
    let (front_end, mut session) = daemon.session_with(Options { queue_size: 1024, ..Options::default() });
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
    let mut arg = LkIn::new_zeroed();
    (arg.fh, arg.owner) = (fh.into(), 2.into());
    arg.lk.type_ = (libc::F_WRLCK as u32).into();
    let request = Request::new(Opcode::Setlkw, nodeid, arg.as_bytes());
    let mut submitted = 0;
    while submit(&mut session, &request).is_some() {
        submitted += 1;
    }
    session.exchange.kick.wake().unwrap();
    // Those beyond the limit are refused, and so completed.
    let begun_at = std::time::Instant::now();
    let refused = submitted - LOCK_WAITERS_MAX;
    while u64::from(session.exchange.ring.used_idx()) < refused {
        assert!(begun_at.elapsed() < HANG_AFTER, "the requests beyond the limit are not answered");
        std::thread::yield_now();
    }
    let usage = Usage::of(&daemon);
    println!("{submitted} requests that wait: {usage:?}");
    assert!(usage.threads <= THREADS_MAX + LOCK_WAITERS_MAX);
    front_end.stop_queue(REQUEST).unwrap();
    assert_eq!(daemon.metric("transom_lock_waiters"), 0);
    drop((front_end, session));
    daemon.is_healthy();
}
