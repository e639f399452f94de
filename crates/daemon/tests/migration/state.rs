//! The transfer of the session's state, with messages in the order in which QEMU sends them.

use std::{
    fs,
    io::{Read as _, Write as _},
    time::Duration,
};

use transom_frontend::{FrontEnd, Options, dirty::DirtyLog, fuse::Session, queue::Queue};

use crate::{daemon::Daemon, watched::REQUEST};

/// Long enough for any machine that makes progress at all.
const NEVER: Duration = Duration::from_secs(600);
/// The high-priority queue.
const HIPRIO: u32 = 0;

struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
}

impl Guest {
    fn start(daemon: &Daemon) -> Self {
        let front_end = daemon.connect(Options::default());
        front_end.start_queue(HIPRIO).unwrap();
        let session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
        Self { front_end, session }
    }

    /// Goes on with `state` at another daemon.
    fn go_on(daemon: &Daemon, state: &[u8]) -> Self {
        let front_end = daemon.connect(Options::default());
        front_end.load_state(state).unwrap();
        Self::with_rings(front_end)
    }

    /// Starts the rings after a state was loaded.
    fn with_rings(front_end: FrontEnd) -> Self {
        front_end.start_queue(HIPRIO).unwrap();
        let session = Session::new(front_end.start_queue(REQUEST).unwrap());
        Self { front_end, session }
    }

    /// Stops the rings, as at the end of a migration.
    fn stop(&self) {
        self.front_end.stop_queue(HIPRIO).unwrap();
        self.front_end.stop_queue(REQUEST).unwrap();
    }

    fn saved(&self) -> Vec<u8> {
        self.stop();
        self.front_end.save_state().unwrap()
    }
}

#[test]
fn a_session_goes_on_at_another_daemon_and_back_at_the_first() {
    let (here, there) = {
        let here = Daemon::start();
        let there = Daemon::beside(&here, NEVER);
        (here, there)
    };
    fs::create_dir(here.share().join("dir")).unwrap();
    fs::write(here.share().join("dir/file"), "content").unwrap();
    let mut guest = Guest::start(&here);
    let dir = guest.session.lookup(1, b"dir").unwrap().nodeid.get();
    let file = guest.session.lookup(dir, b"file").unwrap().nodeid.get();
    let fh = guest.session.open(file, libc::O_RDWR as u32).unwrap();
    let log = DirtyLog::new(guest.front_end.ram.size()).unwrap();
    guest.front_end.send_log(&log).unwrap();
    guest.front_end.switch_log(true, &[(REQUEST, &guest.session.exchange.ring)]).unwrap();
    guest.session.write(file, fh, 7, b" more").unwrap();
    let state = guest.saved();

    let mut moved = Guest::go_on(&there, &state);
    assert_eq!(moved.session.read(file, fh, 0, 100).unwrap(), b"content more");
    assert_eq!(moved.session.lookup(dir, b"file").unwrap().nodeid.get(), file);
    moved.session.write(file, fh, 0, b"CONTENT").unwrap();

    // The migration was cancelled, as far as the first daemon knows.
    let queue = &guest.session.exchange;
    guest.front_end.switch_log(false, &[]).unwrap();
    guest.front_end.restart_queue(REQUEST, queue, queue.ring.next_avail()).unwrap();
    assert_eq!(guest.session.read(file, fh, 0, 100).unwrap(), b"CONTENT more");
    drop((guest, moved));
}

/// As Cloud Hypervisor does, from its source: it disables the rings and does not ask where they stand. At the
/// destination it sets each ring up with the driver's own index. Not tested with Cloud Hypervisor itself.
#[test]
fn a_session_of_rings_that_were_only_disabled_goes_on() {
    let here = Daemon::start();
    let there = Daemon::beside(&here, NEVER);
    let mut guest = Guest::start(&here);
    let file = guest.session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    guest.session.write(nodeid, fh, 0, b"content").unwrap();
    for queue in [HIPRIO, REQUEST] {
        guest.front_end.enable(queue, false).unwrap();
    }
    let state = guest.front_end.save_state().unwrap();
    let moved = there.connect_with(guest.session.exchange.ram());
    moved.load_state(&state).unwrap();
    let queue = &guest.session.exchange;
    moved.restart_queue(REQUEST, queue, queue.ring.next_avail()).unwrap();
    assert_eq!(guest.session.read(nodeid, fh, 0, 100).unwrap(), b"content");
    drop((guest, moved));
}

#[test]
fn a_state_that_was_cut_off_is_refused_and_a_whole_one_is_taken_afterwards() {
    let here = Daemon::start();
    let there = Daemon::beside(&here, NEVER);
    fs::write(here.share().join("file"), "content").unwrap();
    let mut guest = Guest::start(&here);
    let file = guest.session.lookup(1, b"file").unwrap().nodeid.get();
    let state = guest.saved();
    let front_end = there.connect(Options::default());
    for broken in [&[], &state[..1], &state[..state.len() / 2], &state[..state.len() - 1], b"nonsense".as_slice()] {
        front_end.load_state(broken).unwrap_err();
    }
    front_end.check_state().unwrap_err();
    front_end.load_state(&state).unwrap();
    let mut moved = Guest::with_rings(front_end);
    assert_eq!(moved.session.getattr(file, None).unwrap().size.get(), 7);
    drop((guest, moved));
}

#[test]
fn a_second_transfer_does_not_disturb_the_first() {
    let here = Daemon::start();
    let there = Daemon::beside(&here, NEVER);
    let state = Guest::start(&here).saved();
    let front_end = there.connect(Options::default());
    let mut first = front_end.start_load().unwrap();
    first.write_all(&state[..state.len() / 2]).unwrap();
    front_end.start_load().unwrap_err();
    front_end.start_save().unwrap_err();
    first.write_all(&state[state.len() / 2..]).unwrap();
    drop(first);
    front_end.check_state().unwrap();
}

#[test]
fn a_peer_that_does_nothing_is_given_up() {
    let here = Daemon::start();
    let there = Daemon::beside(&here, Duration::from_millis(50));
    for number in 0..2000 {
        fs::write(here.share().join(format!("{number:0>100}")), "").unwrap();
    }
    let mut guest = Guest::start(&there);
    let silent = |front_end: &FrontEnd| {
        let idle = front_end.start_load().unwrap();
        front_end.check_state().unwrap_err();
        drop(idle);
    };
    // More than a pipe holds, and nobody reads it.
    for number in 0..2000 {
        guest.session.lookup(1, format!("{number:0>100}").as_bytes()).unwrap();
    }
    guest.stop();
    let mut unread = guest.front_end.start_save().unwrap();
    guest.front_end.check_state().unwrap_err();
    let mut beginning = Vec::new();
    unread.read_to_end(&mut beginning).unwrap();
    assert!(beginning.len() < 200_000, "{} bytes", beginning.len());
    silent(&guest.front_end);
    drop(guest);
    let front_end = here.connect(Options::default());
    drop(front_end);
}

#[test]
fn a_front_end_that_leaves_ends_the_transfer() {
    let here = Daemon::start();
    let there = Daemon::beside(&here, NEVER);
    let state = Guest::start(&here).saved();
    let front_end = there.connect(Options::default());
    let mut half = front_end.start_load().unwrap();
    half.write_all(&state[..state.len() / 2]).unwrap();
    drop(front_end);
    // Waits for the daemon's end, while the pipe is still open.
    drop(there);
    drop(half);
}
