//! Transfers of the state that the front end gives up, because the guest goes on here or its device is reset.

use std::{
    fs::{self, File},
    io::{PipeReader, Read as _, Write as _},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use transom_frontend::{FrontEnd, Options, fuse::Session, queue::Queue};

use crate::{daemon::Daemon, watched::REQUEST};

const READ_WRITE: u32 = libc::O_RDWR as u32;
const WRITE: u32 = libc::F_WRLCK as u32;
/// The state of a guest that knows 2000 names of 100 bytes does not fit into a pipe.
const NAMES: usize = 2000;

/// A guest that knows many inodes.
struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
    file: File,
}

impl Guest {
    fn start(daemon: &Daemon) -> Self {
        let names = || (0..NAMES).map(|number| format!("{number:0>100}"));
        names().for_each(|name| fs::write(daemon.share().join(name), "").unwrap());
        fs::write(daemon.share().join("file"), "").unwrap();
        let front_end = daemon.connect(Options::default());
        let mut session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
        names().for_each(|name| _ = session.lookup(1, name.as_bytes()).unwrap());
        let file = File::options().read(true).write(true).open(daemon.share().join("file")).unwrap();
        Self { front_end, session, file }
    }

    /// Opens the file and locks it. Returns its inode and its handle.
    fn lock(&mut self) -> (u64, u64) {
        let nodeid = self.session.lookup(1, b"file").unwrap().nodeid.get();
        let fh = self.session.open(nodeid, READ_WRITE).unwrap();
        self.session.setlk(nodeid, fh, 7, WRITE, false).unwrap();
        assert!(self.is_locked());
        (nodeid, fh)
    }

    /// Whether nobody on the host could have the lock.
    fn is_locked(&self) -> bool {
        let taken = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive);
        fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock).unwrap();
        taken.is_err()
    }

    /// Stops the ring and begins to save. Returns the state, which the daemon has not written to its end, and where the
    /// ring goes on.
    fn saving(&self) -> (PipeReader, u16) {
        let base = self.front_end.stop_queue(REQUEST).unwrap();
        let mut state = self.front_end.start_save().unwrap();
        state.read_exact(&mut [0]).unwrap();
        (state, base)
    }

    /// Goes on here.
    fn go_on(&mut self, base: u16) {
        self.front_end.restart_queue(REQUEST, &self.session.exchange, base).unwrap();
        self.session.getattr(1, None).unwrap();
    }

    /// Resets the device, as a driver does when the guest reboots, and begins another session.
    fn reboot(&mut self) {
        self.front_end.reset().unwrap();
        self.session = Session::begin(self.front_end.start_queue(REQUEST).unwrap()).unwrap();
    }
}

/// Reads what is left, and whether the front end is told that it is the whole state.
fn end_of(front_end: &FrontEnd, mut state: PipeReader) -> anyhow::Result<()> {
    std::io::copy(&mut state, &mut std::io::sink()).unwrap();
    front_end.check_state()
}

#[test]
fn a_guest_that_goes_on_during_a_save_keeps_its_locks() {
    let here = Daemon::start_with_travelling_locks();
    let mut guest = Guest::start(&here);
    guest.lock();
    let (state, base) = guest.saving();
    guest.go_on(base);
    end_of(&guest.front_end, state).unwrap_err();
    assert!(guest.is_locked(), "the source has let go of a lock while its guest runs");
    // Another attempt succeeds.
    let (state, _) = guest.saving();
    end_of(&guest.front_end, state).unwrap();
    assert!(!guest.is_locked());
    drop(guest);
}

#[test]
fn a_front_end_that_reads_no_more_has_no_state() {
    let here = Daemon::start_with_travelling_locks();
    let mut guest = Guest::start(&here);
    guest.lock();
    let (state, base) = guest.saving();
    drop(state);
    guest.front_end.check_state().unwrap_err();
    assert!(guest.is_locked());
    guest.go_on(base);
    drop(guest);
}

#[test]
fn a_reset_during_a_save_ends_it_and_the_next_session_keeps_its_locks() {
    let here = Daemon::start_with_travelling_locks();
    let mut guest = Guest::start(&here);
    guest.lock();
    let (state, _) = guest.saving();
    guest.reboot();
    guest.lock();
    end_of(&guest.front_end, state).unwrap_err();
    assert!(guest.is_locked(), "the state of the session before has let go of a lock of this one");
    drop(guest);
}

/// Saves the state of a guest at one daemon, and begins to load it into another.
fn half_loaded(here: &Daemon, there: &Daemon) -> (Guest, impl FnOnce(&FrontEnd)) {
    let source = Guest::start(here);
    source.front_end.stop_queue(REQUEST).unwrap();
    let state = source.front_end.save_state().unwrap();
    drop(source);
    let guest = Guest::start(there);
    guest.front_end.stop_queue(REQUEST).unwrap();
    let mut rest = guest.front_end.start_load().unwrap();
    rest.write_all(&state[..state.len() / 2]).unwrap();
    let finish = move |front_end: &FrontEnd| {
        // The daemon may have closed the pipe.
        let _ = rest.write_all(&state[state.len() / 2..]);
        drop(rest);
        front_end.check_state().unwrap_err();
    };
    (guest, finish)
}

#[test]
fn a_reset_during_a_load_ends_it_and_the_next_session_stays() {
    let (here, there) = Daemon::pair_with_locks();
    let (mut guest, finish) = half_loaded(&here, &there);
    guest.reboot();
    let (nodeid, fh) = guest.lock();
    finish(&guest.front_end);
    guest.session.write(nodeid, fh, 0, b"content").unwrap();
    assert!(guest.is_locked());
    drop(guest);
}

#[test]
fn a_guest_that_runs_during_a_load_keeps_its_session() {
    let (here, there) = Daemon::pair_with_locks();
    let (mut guest, finish) = half_loaded(&here, &there);
    guest.session = Session::begin(guest.front_end.start_queue(REQUEST).unwrap()).unwrap();
    let (nodeid, fh) = guest.lock();
    finish(&guest.front_end);
    guest.session.write(nodeid, fh, 0, b"content").unwrap();
    assert!(guest.is_locked());
    drop(guest);
}
