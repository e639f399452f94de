//! What a driver has before a death, it has afterwards.

use std::{
    fs::{self, File},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use transom_frontend::fuse::Session;

use crate::{
    Guest, READY_MAX, REQUEST, kill,
    launch::{Bench, has_user_namespaces, is_root, skipped},
    serving, start, wait_until_ready,
};

const SANDBOXES: [&str; 3] = ["--sandbox=namespace", "--sandbox=chroot", "--sandbox=none"];
const WRITE: u32 = libc::F_WRLCK as u32;
const READ_WRITE: u32 = libc::O_RDWR as u32;

#[test]
fn a_session_goes_on_with_its_inodes_files_and_directories() {
    for sandbox in SANDBOXES.iter().filter(|sandbox| is_root() || !sandbox.contains("chroot")) {
        let bench = Bench::new();
        fs::create_dir_all(bench.share().join("dir")).unwrap();
        fs::write(bench.share().join("dir/file"), "content").unwrap();
        fs::write(bench.share().join("removed"), "removed").unwrap();
        let mut daemon = start(&bench, sandbox);
        let mut guest = Guest::begin(&mut daemon);
        let session = &mut guest.session;
        let dir = session.lookup(1, b"dir").unwrap().nodeid.get();
        let file = session.lookup(dir, b"file").unwrap().nodeid.get();
        let fh = session.open(file, READ_WRITE).unwrap();
        let removed = session.lookup(1, b"removed").unwrap().nodeid.get();
        let removed_fh = session.open(removed, READ_WRITE).unwrap();
        session.unlink(1, b"removed").unwrap();
        let listing = session.opendir(dir).unwrap();
        let first = session.readdir_once(dir, listing, 0, 4096, false).unwrap();
        session.rename((dir, b"file"), (1, b"moved")).unwrap();

        for round in 0..2 {
            let killed = kill(&daemon);
            session.write(file, fh, 7, format!(" more {round}").as_bytes()).unwrap();
            assert_ne!(serving(&daemon), killed, "{sandbox}");
            assert_eq!(session.read(file, fh, 0, 100).unwrap(), format!("content more {round}").as_bytes());
            assert_eq!(session.lookup(1, b"moved").unwrap().nodeid.get(), file, "{sandbox}");
            session.write(removed, removed_fh, 0, b"REMOVED").unwrap();
            assert_eq!(session.read(removed, removed_fh, 0, 100).unwrap(), b"REMOVED");
            assert_eq!(session.getattr(removed, None).unwrap().nlink.get(), 0);
            let again = session.readdir_once(dir, listing, 0, 4096, false).unwrap();
            assert_eq!(again.len() + 1, first.len(), "without the name that has moved");
            let name = format!("new{round}");
            let new = session.create(dir, name.as_bytes(), READ_WRITE, 0o644).unwrap();
            assert!(![1, dir, file, removed].contains(&new.entry.nodeid.get()));
            assert!(![fh, removed_fh, listing].contains(&new.open.fh.get()));
            session.release(new.entry.nodeid.get(), new.open.fh.get()).unwrap();
            session.unlink(dir, name.as_bytes()).unwrap();
            session.forget(new.entry.nodeid.get(), 1).unwrap();
        }
        assert_eq!(fs::read_to_string(bench.share().join("moved")).unwrap(), "content more 1");
        session.release(file, fh).unwrap();
        drop(guest);
        let (status, said) = daemon.wait();
        assert!(status.success(), "{sandbox}: {status}: {said}");
        assert_eq!(bench.left_behind(), Vec::<String>::new());
    }
}

#[test]
fn daemons_of_ordinary_users_go_on() {
    if is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::of_ordinary_user();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let dir = session.mkdir(1, b"dir", 0o755).unwrap().nodeid.get();
    let created = session.create(dir, b"file", READ_WRITE, 0o600).unwrap();
    let (nodeid, fh) = (created.entry.nodeid.get(), created.open.fh.get());
    session.rename((1, b"dir"), (1, b"renamed")).unwrap();
    let gone = session.create(1, b"gone", READ_WRITE, 0o600).unwrap();
    session.unlink(1, b"gone").unwrap();
    for _ in 0..2 {
        kill(&daemon);
        session.write(nodeid, fh, 0, b"content").unwrap();
        assert_eq!(session.lookup(dir, b"file").unwrap().nodeid.get(), nodeid);
        session.write(gone.entry.nodeid.get(), gone.open.fh.get(), 0, b"content").unwrap();
    }
    drop(guest);
    assert!(daemon.wait().0.success());
}

#[test]
fn locks_of_both_kinds_are_held_on_and_end_as_ever() {
    let bench = Bench::new();
    let path = |name: &str| bench.share().join(name);
    fs::write(path("posix"), "").unwrap();
    fs::write(path("flock"), "").unwrap();
    let open = |name: &str| File::options().write(true).open(path(name)).unwrap();
    let is_free = |name: &str| fcntl_lock(open(name), FlockOperation::NonBlockingLockExclusive).is_ok();
    let mut daemon = start(&bench, "--posix-lock --flock");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let mut open_in_guest = |name: &[u8]| {
        let nodeid = session.lookup(1, name).unwrap().nodeid.get();
        (nodeid, session.open(nodeid, READ_WRITE).unwrap())
    };
    let (posix, posix_fh) = open_in_guest(b"posix");
    let (flock, flock_fh) = open_in_guest(b"flock");
    session.setlk(posix, posix_fh, 7, WRITE, false).unwrap();
    session.flock(flock, flock_fh, 7, WRITE).unwrap();
    for _ in 0..2 {
        kill(&daemon);
        session.getattr(1, None).unwrap();
        assert!(!is_free("posix"));
        assert!(open("flock").try_lock().is_err());
        session.setlk(posix, posix_fh, 8, WRITE, false).unwrap_err();
        session.setlk(posix, posix_fh, 7, WRITE, false).unwrap();
    }
    session.setlk(posix, posix_fh, 7, libc::F_UNLCK as u32, false).unwrap();
    assert!(is_free("posix"));
    session.setlk(posix, posix_fh, 9, WRITE, false).unwrap();
    session.release(posix, posix_fh).unwrap();
    assert!(is_free("posix"), "a lock ends with its open file");
    session.release(flock, flock_fh).unwrap();
    open("flock").try_lock().unwrap();
    drop(guest);
}

#[test]
fn a_request_that_waits_for_a_lock_goes_on_waiting_and_gets_it() {
    let bench = Bench::new();
    fs::write(bench.share().join("file"), "").unwrap();
    let mut daemon = start(&bench, "--flock");
    let mut guest = Guest::begin(&mut daemon);
    let another = guest.front_end.start_queue(REQUEST + 1).unwrap();
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, READ_WRITE).unwrap();
    let held = File::options().write(true).open(bench.share().join("file")).unwrap();
    held.lock().unwrap();
    let waiter = thread::spawn(move || {
        let mut session = Session::new(another);
        session.flock_waiting(file, fh, 7, WRITE).unwrap();
    });
    // Whether the request waits by then or comes later.
    kill(&daemon);
    session.getattr(1, None).unwrap();
    assert!(!waiter.is_finished());
    held.unlock().unwrap();
    waiter.join().unwrap();
    held.try_lock().unwrap_err();
    drop(guest);
}

#[test]
fn stopped_and_restarted_rings_go_on_where_they_stood() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    guest.session.getattr(1, None).unwrap();
    let base = guest.front_end.stop_queue(REQUEST).unwrap();
    kill(&daemon);
    guest.front_end.restart_queue(REQUEST, &guest.session.exchange, base).unwrap();
    guest.session.getattr(1, None).unwrap();
    kill(&daemon);
    let base = guest.front_end.stop_queue(REQUEST).unwrap();
    guest.front_end.restart_queue(REQUEST, &guest.session.exchange, base).unwrap();
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn the_third_death_within_ten_seconds_ends_the_daemon_with_the_reason() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    for _ in 0..2 {
        kill(&daemon);
        guest.session.getattr(1, None).unwrap();
    }
    kill(&daemon);
    guest.front_end.channel.wait_for_close().unwrap();
    let (status, said) = daemon.wait();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{said}");
    assert!(said.contains("has died 3 times within 10 s: giving up"), "{said}");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn the_next_front_end_is_served_after_a_death_between_two() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "--keep-serving");
    drop(Guest::begin(&mut daemon));
    kill(&daemon);
    let mut guest = Guest::begin(&mut daemon);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn the_first_front_end_is_served_after_a_death_before_it() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "");
    wait_until_ready(&daemon);
    kill(&daemon);
    let mut guest = Guest::begin(&mut daemon);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
    let (status, said) = daemon.wait();
    assert!(status.success(), "{status}: {said}");
}

#[test]
fn an_upgrade_is_refused_with_the_reason() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let mut ask = std::process::Command::new(env!("CARGO_BIN_EXE_transomd"));
    let output = ask.arg("--upgrade").arg(bench.socket()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--resilient"));
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn deaths_leave_no_descriptors_behind() {
    let bench = Bench::new();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let count = |pid| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    guest.session.getattr(1, None).unwrap();
    let before = (count(serving(&daemon)), count(daemon.pid()));
    for _ in 0..2 {
        kill(&daemon);
        guest.session.getattr(1, None).unwrap();
    }
    // The first process may be about to close what the last death has left.
    let begun = Instant::now();
    loop {
        let after = (count(serving(&daemon)), count(daemon.pid()));
        if after.0 <= before.0 && after.1 <= before.1 {
            break;
        }
        assert!(begun.elapsed() < READY_MAX, "{before:?} have become {after:?}");
        thread::sleep(Duration::from_millis(5));
    }
    drop(guest);
}
