//! Stops, resets and departures while requests are under way.

use std::{os::unix::net::UnixStream, sync::mpsc, thread};

use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    message::HANG_AFTER,
    queue::{Queue, Token},
};
use transom_wire::{Opcode, header::OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::host::{Daemon, REQUEST, use_it};

/// Fills the ring with reads of the root's attributes and wakes the device.
fn load(session: &mut Session<Queue>) -> usize {
    let mut count = 0;
    loop {
        let header = session.header(Opcode::Lookup as u32, 1, 7);
        match session.exchange.submit(&[header.as_bytes(), b"absent\0"], &[16, 128]) {
            Some(_) => count += 1,
            None => break,
        }
    }
    session.exchange.notify().unwrap();
    count
}

/// A session whose lock is taken, and one whose request waits for it on the other queue.
fn locked(daemon: &Daemon, front_end: &FrontEnd, session: &mut Session<Queue>) -> Session<Queue> {
    let file = session.create(1, b"locked", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
    let mut waiting = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    wait_for_lock(daemon, &mut waiting, (nodeid, fh), 2);
    waiting
}

/// Asks for the lock that another owner has, and returns when the request waits.
fn wait_for_lock(daemon: &Daemon, session: &mut Session<Queue>, (nodeid, fh): (u64, u64), owner: u64) -> Token {
    let arg = transom_wire::ops::lk::LkIn {
        fh: fh.into(),
        owner: owner.into(),
        lk: transom_wire::ops::lk::FileLock {
            start: 0.into(),
            end: 100.into(),
            type_: (libc::F_WRLCK as u32).into(),
            pid: 2.into(),
        },
        lk_flags: 0.into(),
        padding: 0.into(),
    };
    let waiters = daemon.held().waiters;
    let header = session.header(Opcode::Setlkw as u32, nodeid, arg.as_bytes().len());
    let token = session.exchange.submit(&[header.as_bytes(), arg.as_bytes()], &[16]).unwrap();
    session.exchange.notify().unwrap();
    while daemon.held().waiters == waiters {
        thread::yield_now();
    }
    token
}

#[test]
fn a_stop_answers_what_was_taken_before_it_replies() {
    let daemon = Daemon::start();
    for _ in 0..100 {
        let (front_end, mut session) = daemon.session();
        assert_eq!(load(&mut session), 64);
        let base = front_end.stop_queue(REQUEST).unwrap();
        assert_eq!(session.exchange.ring.used_idx(), base, "taken and answered");
    }
    daemon.is_healthy();
}

#[test]
fn a_stopped_queue_goes_on_where_it_stopped() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    for _ in 0..50 {
        load(&mut session);
        let base = front_end.stop_queue(REQUEST).unwrap();
        front_end.restart_queue(REQUEST, &session.exchange, base).unwrap();
        session.exchange.kick.wake().unwrap();
        session.exchange.wait_for_all().unwrap();
    }
    use_it(&mut session);
}

#[test]
fn a_disabled_queue_goes_on_when_it_is_enabled() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    for _ in 0..50 {
        front_end.enable(REQUEST, false).unwrap();
        load(&mut session);
        front_end.enable(REQUEST, true).unwrap();
        session.exchange.wait_for_all().unwrap();
    }
    use_it(&mut session);
}

#[test]
fn a_reset_during_load_ends_the_session_and_nothing_else() {
    let daemon = Daemon::start();
    for _ in 0..50 {
        let (front_end, mut session) = daemon.session();
        session.mkdir(1, b"directory", 0o755).unwrap();
        load(&mut session);
        front_end.reset().unwrap();
        assert_eq!(daemon.held().lookups, 0);
        drop((front_end, session));
        let (_front_end, mut session) = daemon.session();
        session.rmdir(1, b"directory").unwrap();
    }
    daemon.is_healthy();
}

#[test]
fn a_front_end_that_leaves_during_load_leaves_nothing() {
    let daemon = Daemon::start();
    for _ in 0..50 {
        let (front_end, mut session) = daemon.session();
        let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        load(&mut session);
        drop(front_end);
        drop(session);
        let _ = file;
    }
    daemon.is_healthy();
}

#[test]
fn a_guest_that_goes_on_without_its_front_end_is_not_served_for_ever() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    load(&mut session);
    let socket = front_end.channel.stream().try_clone().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let guest = thread::spawn(move || {
        while stopped.try_recv().is_err() {
            let _ = session.exchange.reap();
            load(&mut session);
            session.exchange.kick.wake().unwrap();
        }
    });
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    drop(front_end);
    daemon.is_healthy();
    stop.send(()).unwrap();
    guest.join().unwrap();
}

#[test]
fn a_request_that_waits_for_a_lock_is_interrupted_by_name() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let mut waiting = locked(&daemon, &front_end, &mut session);
    // The first request of its session.
    session.interrupt(2).unwrap();
    waiting.exchange.wait_for_all().unwrap();
    assert_eq!(daemon.held().waiters, 0);
    use_it(&mut waiting);
}

#[test]
fn a_request_that_waits_for_a_lock_holds_up_neither_stop_nor_reset_nor_departure() {
    let daemon = Daemon::start();
    for way in 0..4 {
        let (front_end, mut session) = daemon.session();
        let waiting = locked(&daemon, &front_end, &mut session);
        match way {
            0 => assert_eq!(front_end.stop_queue(REQUEST + 1).unwrap(), waiting.exchange.ring.used_idx() + 1),
            1 => front_end.reset().unwrap(),
            2 => session.destroy().unwrap(),
            _ => {}
        }
        drop((front_end, session, waiting));
        let (front_end, mut session) = daemon.session();
        assert_eq!(daemon.held().waiters, 0);
        session.unlink(1, b"locked").unwrap();
        drop((front_end, session));
        daemon.is_healthy();
    }
}

#[test]
fn a_stop_of_one_queue_leaves_those_that_wait_on_another() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
    let mut other = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    let waits_on = wait_for_lock(&daemon, &mut other, (nodeid, fh), 2);
    // 1. The stopped queue's own request waits no more.
    wait_for_lock(&daemon, &mut session, (nodeid, fh), 3);
    front_end.stop_queue(REQUEST).unwrap();
    assert_eq!(daemon.held().waiters, 1);
    // 2. The other one gets its lock when it is free.
    let mut session = Session::new(front_end.start_queue(REQUEST).unwrap());
    session.setlk(nodeid, fh, 1, libc::F_UNLCK as u32, false).unwrap();
    assert_eq!(error_of(&other.exchange.wait(waits_on).unwrap().writable), 0);
    drop((front_end, session, other));
    let (_front_end, mut session) = daemon.session();
    session.unlink(1, b"file").unwrap();
}

#[test]
fn a_request_that_waits_for_a_lock_waits_on_after_a_stop() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
    let mut other = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    let waits = wait_for_lock(&daemon, &mut other, (nodeid, fh), 2);
    for _ in 0..20 {
        let base = front_end.stop_queue(REQUEST + 1).unwrap();
        assert_eq!((daemon.held().waiters, other.exchange.reap().unwrap()), (0, 0), "neither waiting nor answered");
        front_end.restart_queue(REQUEST + 1, &other.exchange, base).unwrap();
        while daemon.held().waiters == 0 {
            thread::yield_now();
        }
    }
    // The lock is released while the queue is stopped.
    let base = front_end.stop_queue(REQUEST + 1).unwrap();
    session.setlk(nodeid, fh, 1, libc::F_UNLCK as u32, false).unwrap();
    front_end.restart_queue(REQUEST + 1, &other.exchange, base).unwrap();
    assert_eq!(error_of(&other.exchange.wait(waits).unwrap().writable), 0);
    use_it(&mut session);
    assert!(session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).is_err(), "the other owner has it");
    drop((front_end, session, other));
    let (_front_end, mut session) = daemon.session();
    session.unlink(1, b"file").unwrap();
}

#[test]
fn a_request_that_waits_for_a_lock_is_dropped_when_its_ring_starts_over() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let other = locked(&daemon, &front_end, &mut session);
    front_end.stop_queue(REQUEST + 1).unwrap();
    drop(other);
    let mut fresh = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    use_it(&mut fresh);
    while daemon.queue_depth(REQUEST + 1) != 0 {
        thread::yield_now();
    }
    assert_eq!((daemon.held().waiters, fresh.exchange.ring.used_idx()), (0, fresh.exchange.ring.next_avail()));
    session.unlink(1, b"locked").unwrap();
    drop((front_end, session, fresh));
    daemon.is_healthy();
}

/// What a reply's header says.
fn error_of(reply: &[u8]) -> i32 {
    OutHeader::read_from_prefix(reply).unwrap().0.error.get()
}

#[test]
fn init_and_destroy_during_load_are_survived() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let mut second = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    for round in 0..100 {
        load(&mut session);
        if round % 2 == 0 {
            second.destroy().unwrap();
        }
        second.init(transom_wire::ops::init::InitFlags::all()).unwrap();
        session.exchange.wait_for_all().unwrap();
    }
    drop((front_end, session, second));
    daemon.is_healthy();
}

#[test]
fn a_second_front_end_waits_until_the_first_has_left() {
    let daemon = Daemon::start();
    let (first, mut session) = daemon.session();
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    let (connects, connected) = mpsc::channel();
    let second = thread::spawn(move || {
        let front_end = FrontEnd::over(stream, Options::default()).unwrap();
        connects.send(()).unwrap();
        use_it(&mut Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap());
    });
    use_it(&mut session);
    assert!(connected.try_recv().is_err(), "the first one is still there");
    drop((first, session));
    connected.recv_timeout(HANG_AFTER).unwrap();
    second.join().unwrap();
    daemon.is_healthy();
}
