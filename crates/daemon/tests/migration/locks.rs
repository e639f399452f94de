//! POSIX locks of the host, and requests that wait for one, move to another daemon on the same file system.

use std::{
    fs::File,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    queue::{Queue, Token},
};
use transom_wire::{
    Opcode,
    ops::lk::{FileLock, LkIn},
};
use zerocopy::IntoBytes as _;

use crate::{daemon::Daemon, watched::REQUEST};

/// Well above what anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const WRITE: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

/// A guest whose owner 7 has locked a file.
struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
    nodeid: u64,
    fh: u64,
    file: File,
}

impl Guest {
    fn start(daemon: &Daemon) -> Self {
        let front_end = daemon.connect(Options::default());
        let mut session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
        let created = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        let (nodeid, fh) = (created.entry.nodeid.get(), created.open.fh.get());
        session.setlk(nodeid, fh, 7, WRITE, false).unwrap();
        let file = File::options().read(true).write(true).open(daemon.share().join("file")).unwrap();
        let guest = Self { front_end, session, nodeid, fh, file };
        assert!(!guest.is_free());
        guest
    }

    /// Whether somebody of the host could have the lock.
    fn is_free(&self) -> bool {
        let is_free = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock).unwrap();
        is_free
    }

    /// Stops the ring at the source and returns the state, and where the ring goes on.
    fn saved(&self) -> (Vec<u8>, u16) {
        let base = self.front_end.stop_queue(REQUEST).unwrap();
        (self.front_end.save_state().unwrap(), base)
    }

    /// Goes on at the source.
    fn go_on(&mut self, base: u16) {
        self.front_end.restart_queue(REQUEST, &self.session.exchange, base).unwrap();
        self.session.getattr(1, None).unwrap();
    }

    /// Goes on behind `front_end`, which has the guest's memory and its state.
    fn arrive(&mut self, front_end: FrontEnd, base: u16) {
        self.front_end = front_end;
        self.go_on(base);
    }
}

#[test]
fn a_lock_moves_and_ends_as_ever() {
    let (here, there) = Daemon::pair_with_locks();
    let mut guest = Guest::start(&here);
    let (state, base) = guest.saved();
    let moved = there.connect_with(guest.session.exchange.ram());
    moved.load_state(&state).unwrap();
    assert!(!guest.is_free(), "before the guest runs");
    guest.arrive(moved, base);
    let Guest { session, nodeid, fh, .. } = &mut guest;
    session.setlk(*nodeid, *fh, 8, WRITE, false).unwrap_err();
    session.setlk(*nodeid, *fh, 7, WRITE, false).unwrap();
    session.setlk(*nodeid, *fh, 7, UNLOCK, false).unwrap();
    assert!(guest.is_free());
    drop(guest);
}

#[test]
fn a_lock_that_has_moved_ends_with_its_open_file() {
    let (here, there) = Daemon::pair_with_locks();
    let mut guest = Guest::start(&here);
    let (state, base) = guest.saved();
    let moved = there.connect_with(guest.session.exchange.ram());
    moved.load_state(&state).unwrap();
    guest.arrive(moved, base);
    assert!(!guest.is_free());
    guest.session.release(guest.nodeid, guest.fh).unwrap();
    assert!(guest.is_free());
    drop(guest);
}

#[test]
fn a_cancelled_migration_takes_the_lock_back() {
    let (here, there) = Daemon::pair_with_locks();
    let mut guest = Guest::start(&here);
    for _ in 0..3 {
        let (_, base) = guest.saved();
        assert!(guest.is_free(), "the source has let go");
        guest.go_on(base);
        assert!(!guest.is_free());
    }
    // Rings that are only disabled, as by Cloud Hypervisor.
    guest.front_end.enable(REQUEST, false).unwrap();
    guest.front_end.save_state().unwrap();
    assert!(guest.is_free());
    guest.front_end.enable(REQUEST, true).unwrap();
    guest.session.getattr(1, None).unwrap();
    assert!(!guest.is_free());
    drop((guest, there.connect(Options::default())));
}

#[test]
fn a_lock_that_somebody_else_took_is_a_refusal() {
    let (here, there) = Daemon::pair_with_locks();
    let mut guest = Guest::start(&here);
    let (state, base) = guest.saved();
    fcntl_lock(&guest.file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let refused = there.connect_with(guest.session.exchange.ram());
    refused.load_state(&state).unwrap_err();
    // It is free again, but not as the guest has left it.
    std::os::unix::fs::FileExt::write_at(&guest.file, b"changed", 0).unwrap();
    fcntl_lock(&guest.file, FlockOperation::NonBlockingUnlock).unwrap();
    refused.load_state(&state).unwrap_err();
    assert!(guest.is_free(), "what was refused holds no lock");
    guest.go_on(base);
    assert!(!guest.is_free(), "the guest goes on at the source");
    drop((guest, refused));
}

#[test]
fn a_request_that_waits_for_a_lock_waits_on_at_the_destination() {
    let (here, there) = Daemon::pair_with_locks();
    let mut guest = Guest::start(&here);
    let mut other = Session::new(guest.front_end.start_queue(REQUEST + 1).unwrap());
    let waits = wait_for_lock(&here, &mut other, &guest);
    // Twice: the second time, the request arrives and leaves again without being served.
    let other_base = guest.front_end.stop_queue(REQUEST + 1).unwrap();
    let (state, base) = guest.saved();
    let moved = there.connect_with(guest.session.exchange.ram());
    moved.load_state(&state).unwrap();
    let again = moved.save_state().unwrap();
    assert_eq!(again.len(), state.len());
    moved.load_state(&again).unwrap();
    moved.restart_queue(REQUEST + 1, &other.exchange, other_base).unwrap();
    guest.arrive(moved, base);
    await_waiter(&there);
    assert_eq!(other.exchange.reap().unwrap(), 0, "it is not answered");
    guest.session.setlk(guest.nodeid, guest.fh, 7, UNLOCK, false).unwrap();
    let reply = other.exchange.wait(waits).unwrap().writable;
    assert_eq!(reply[4..8], [0; 4]);
    assert!(!guest.is_free(), "the other owner has the lock");
    drop((guest, other));
}

/// Asks for the lock that owner 7 has, and returns when the request waits.
fn wait_for_lock(daemon: &Daemon, session: &mut Session<Queue>, guest: &Guest) -> Token {
    let lock = FileLock { start: 0.into(), end: 100.into(), type_: WRITE.into(), pid: 2.into() };
    let arg = LkIn { fh: guest.fh.into(), owner: 8.into(), lk: lock, lk_flags: 0.into(), padding: 0.into() };
    let header = session.header(Opcode::Setlkw as u32, guest.nodeid, arg.as_bytes().len());
    let token = session.exchange.submit(&[header.as_bytes(), arg.as_bytes()], &[16]).unwrap();
    session.exchange.notify().unwrap();
    await_waiter(daemon);
    token
}

/// Waits until a request waits for a lock.
#[track_caller]
fn await_waiter(daemon: &Daemon) {
    let begun = Instant::now();
    while daemon.waiters() == 0 {
        assert!(begun.elapsed() < LIMIT, "no request waits for a lock within {LIMIT:?}");
        thread::yield_now();
    }
}

#[test]
fn without_the_option_a_guest_with_a_lock_stays() {
    let here = Daemon::start_with_locks();
    let guest = Guest::start(&here);
    guest.front_end.stop_queue(REQUEST).unwrap();
    guest.front_end.save_state().unwrap_err();
    assert!(!guest.is_free());
    drop(guest);
}
