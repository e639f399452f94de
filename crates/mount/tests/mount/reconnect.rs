//! Mounts that go on with another daemon: what programs have open and know stays, or fails with an error; it is never
//! another file.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    thread,
    time::Instant,
};

use rustix::{
    fs::{FlockOperation, fcntl_lock},
    process::{Pid, Signal, kill_process_group},
};
use transom_mount::{Mount, MountEnd, MountError, Options};
use transom_user::share::Share;

use crate::{
    common,
    lasting::{LONG, Lasting, Listening, Waiting, options},
    needs_mounts, unmount,
};

/// Files that are made until one has the number of a removed one: more than a directory's group of inodes has free at
/// first.
const FILLERS: u32 = 1000;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn files_and_directories_stay_open_over_the_death_of_the_daemon() {
    needs_mounts!();
    Lasting::each(|lasting| {
        // 1. Deep, with what is open for reading, for writing, for appending.
        fs::create_dir_all(lasting.at("a/b/c/d")).unwrap();
        fs::write(lasting.at("a/b/c/d/file"), "0123456789").unwrap();
        let mut file = OpenOptions::new().read(true).write(true).open(lasting.at("a/b/c/d/file")).unwrap();
        let mut log = OpenOptions::new().append(true).create(true).open(lasting.at("a/log")).unwrap();
        let dir = File::open(lasting.at("a/b")).unwrap();
        log.write_all(b"one\n").unwrap();
        file.seek(SeekFrom::Start(5)).unwrap();
        let ino = file.metadata().unwrap().ino();
        for _ in 0..3 {
            lasting.kill();
            // 2. All of it goes on where it was.
            let mut rest = String::new();
            file.seek(SeekFrom::Start(5)).unwrap();
            file.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "56789");
            file.write_all_at(b"X", 0).unwrap();
            log.write_all(b"two\n").unwrap();
            assert_eq!(fs::metadata(lasting.at("a/b/c/d/file")).unwrap().ino(), ino);
            assert!(rustix::fs::statat(&dir, "c/d/file", rustix::fs::AtFlags::empty()).is_ok());
            fs::write(lasting.at("a/b/new"), "new").unwrap();
        }
        assert_eq!(fs::read_to_string(lasting.host("a/b/c/d/file")).unwrap(), "X123456789");
        assert_eq!(fs::read_to_string(lasting.host("a/log")).unwrap(), "one\ntwo\ntwo\ntwo\n");
        assert_eq!(lasting.mount.cause(), None);
    });
}

#[test]
fn what_was_renamed_is_found_by_its_new_name_and_what_has_none_is_stale() {
    needs_mounts!();
    Lasting::each(|lasting| {
        // 1. A file in a directory that moves, one that takes another's place, and one without a name.
        fs::create_dir_all(lasting.at("old/sub")).unwrap();
        for name in ["old/sub/moved", "taken", "takes", "removed"] {
            fs::write(lasting.at(name), name).unwrap();
        }
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(lasting.at(name)).unwrap();
        let (moved, taken, takes, removed) = (open("old/sub/moved"), open("taken"), open("takes"), open("removed"));
        fs::rename(lasting.at("old"), lasting.at("new")).unwrap();
        fs::rename(lasting.at("takes"), lasting.at("taken")).unwrap();
        fs::remove_file(lasting.at("removed")).unwrap();
        lasting.kill();
        // 2. By the new names; the others are lost, and closing them is no error.
        let text = |file: &File| std::io::read_to_string(file);
        assert_eq!(text(&moved).unwrap(), "old/sub/moved");
        assert_eq!(text(&takes).unwrap(), "takes");
        assert_eq!(errno(text(&taken)), Some(libc::ESTALE));
        assert_eq!(errno(removed.write_at(b"x", 0)), Some(libc::ESTALE));
        assert_eq!(fs::read_to_string(lasting.at("new/sub/moved")).unwrap(), "old/sub/moved");
        assert_eq!(fs::read_to_string(lasting.at("taken")).unwrap(), "takes");
        assert!(!fs::exists(lasting.at("removed")).unwrap());
    });
}

#[test]
fn a_file_that_was_replaced_while_there_was_no_daemon_is_stale_and_not_the_other_one() {
    needs_mounts!();
    // By a socket, so that there is a time without a daemon.
    let (host, at, dir) = (common::on_disk(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = dir.path().join("s");
    for (name, text) in [("same", "same"), ("replaced", "old"), ("again", "old")] {
        fs::write(host.path().join(name), text).unwrap();
    }
    let mut daemon = Listening::start(host.path(), &socket);
    let share = Share::builder().socket(&socket);
    let mut mounted = Mount::start(share, at.path(), options()).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(at.path().join(name)).unwrap();
    let (same, replaced, again) = (open("same"), open("replaced"), open("again"));
    daemon.kill();
    // 1. One with another number, and one that a file system that gives numbers away again gives the old one.
    fs::write(host.path().join("other"), "other").unwrap();
    fs::rename(host.path().join("other"), host.path().join("replaced")).unwrap();
    let before = fs::metadata(host.path().join("again")).unwrap().ino();
    fs::remove_file(host.path().join("again")).unwrap();
    // Nobody holds the number any more, and others may be free.
    let is_reused = (0..FILLERS).any(|index| {
        let path = host.path().join(format!("filler-{index}"));
        fs::write(&path, "other").unwrap();
        let is_it = fs::metadata(&path).unwrap().ino() == before;
        if is_it || index == FILLERS - 1 {
            fs::rename(&path, host.path().join("again")).unwrap();
        }
        is_it
    });
    if !is_reused {
        println!("SKIPPED: a number that is given again: the file system has given {FILLERS} others");
    }
    // 2. A request waits for the daemon that comes.
    let read = thread::spawn(move || std::io::read_to_string(&same));
    daemon = Listening::start(host.path(), &socket);
    assert_eq!(read.join().unwrap().unwrap(), "same");
    for file in [&replaced, &again] {
        assert_eq!(errno(file.write_at(b"wrong", 0)), Some(libc::ESTALE));
        assert_eq!(errno(file.read_at(&mut [0; 8], 0)), Some(libc::ESTALE));
    }
    for name in ["replaced", "again"] {
        assert_eq!(fs::read_to_string(at.path().join(name)).unwrap(), "other");
    }
    drop((replaced, again));
    unmount(&mut mounted);
    drop(daemon);
}

#[test]
fn what_the_kernel_forgets_the_new_daemon_forgets_too() {
    needs_mounts!();
    let metrics = tempfile::tempdir().unwrap();
    let socket = metrics.path().join("metrics");
    let mut program = common::transomd();
    program.args = options().daemon_args();
    program.args.push(format!("--metrics-socket={}", socket.display()).into());
    let mut lasting = Lasting::start(&program);
    // 1. Many inodes, deep and flat, some with two names, that the kernel knows.
    for dir in ["one", "two", "two/deeper"] {
        fs::create_dir(lasting.at(dir)).unwrap();
        for index in 0..300 {
            fs::write(lasting.at(&format!("{dir}/{index}")), "x").unwrap();
        }
        fs::hard_link(lasting.at(&format!("{dir}/0")), lasting.at(&format!("{dir}/other"))).unwrap();
    }
    let gauge = |name: &str| {
        let report = transom_vm::metrics::read(&socket).unwrap();
        report.gauges.iter().find(|gauge| gauge.name.contains(name)).map(|gauge| gauge.value)
    };
    let before = gauge("inodes").unwrap();
    assert!(before >= 900, "{before}");
    lasting.kill();
    // 2. The new daemon knows as many.
    assert!(fs::exists(lasting.at("two/deeper/7")).unwrap());
    assert_eq!(gauge("inodes").unwrap(), before);
    // 3. What the kernel forgets goes, however often it was looked up by either side: all but the root.
    for dir in ["two", "one"] {
        fs::remove_dir_all(lasting.at(dir)).unwrap();
    }
    let begun = Instant::now();
    while gauge("inodes").unwrap() > 1 {
        assert!(begun.elapsed() < LONG, "{:?} inodes stay", gauge("inodes"));
        thread::yield_now();
    }
    unmount(&mut lasting.mount);
}

#[test]
fn a_daemon_that_keeps_dying_is_given_up_and_everything_fails_as_without() {
    needs_mounts!();
    let mut lasting = Lasting::start(&common::transomd());
    fs::write(lasting.at("file"), "x").unwrap();
    let begun = Instant::now();
    while lasting.mount.cause().is_none() {
        if let Some(pid) = lasting.mount.daemon_id() {
            let _ = kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL);
        }
        assert!(begun.elapsed() < LONG, "it never gives up");
        thread::yield_now();
    }
    assert!(matches!(lasting.mount.wait(), MountEnd::Gone | MountEnd::Broken(_)));
    // The second for what was asked while another test's child still had our descriptors.
    let error = errno(fs::read_dir(lasting.at.path()));
    assert!(matches!(error, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error:?}");
    unmount(&mut lasting.mount);
}

#[test]
fn a_mount_without_a_daemon_can_be_unmounted_and_stopped_at_once() {
    needs_mounts!();
    for is_unmounted in [true, false] {
        let (host, at, dir) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let socket = dir.path().join("s");
        let mut daemon = Listening::start(host.path(), &socket);
        let share = Share::builder().socket(&socket);
        let mut mounted = Mount::start(share, at.path(), options()).unwrap();
        assert!(fs::exists(at.path().join("hello")).unwrap());
        let waiting = Waiting::of(at.path());
        daemon.kill();
        if is_unmounted {
            unmount(&mut mounted);
            assert_eq!(mounted.cause(), Some(MountEnd::Unmounted));
        } else {
            // With a program that waits.
            let path = at.path().join("sub");
            let reader = thread::spawn(move || fs::read_dir(path).map(drop));
            waiting.into_iter().for_each(|waiting| waiting.until(1));
            mounted.stopper().abort();
            assert_eq!(mounted.wait(), MountEnd::Stopped);
            let error = errno(reader.join().unwrap());
            assert!(matches!(error, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error:?}");
        }
    }
}

#[test]
fn a_program_that_waits_for_a_daemon_ends_with_a_signal() {
    needs_mounts!();
    let (host, at, dir) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = dir.path().join("s");
    let mut daemon = Listening::start(host.path(), &socket);
    let share = Share::builder().socket(&socket);
    let mut mounted = Mount::start(share, at.path(), options()).unwrap();
    let Some(waiting) = Waiting::of(at.path()) else { return };
    daemon.kill();
    // For different names: the kernel asks once for one, whoever waits.
    let waits = |name: &str| std::process::Command::new("ls").arg(at.path().join(name)).spawn().unwrap();
    let (mut signalled, mut patient) = (waits("sub"), waits("hello"));
    waiting.until(2);
    rustix::process::kill_process(Pid::from_child(&signalled), Signal::TERM).unwrap();
    assert!(!signalled.wait().unwrap().success());
    assert!(patient.try_wait().unwrap().is_none());
    daemon = Listening::start(host.path(), &socket);
    assert!(patient.wait().unwrap().success());
    unmount(&mut mounted);
    drop(daemon);
}

#[test]
fn what_was_locked_in_the_daemon_fails_until_it_is_opened_again() {
    needs_mounts!();
    let mut program = common::transomd();
    program.args = options().daemon_args();
    program.args.extend(["--posix-lock", "--flock"].map(Into::into));
    let mut lasting = Lasting::start(&program);
    fs::write(lasting.at("file"), "x").unwrap();
    let (locked, free) = (File::open(lasting.at("file")).unwrap(), File::open(lasting.at("file")).unwrap());
    locked.lock_shared().unwrap();
    lasting.kill();
    assert_eq!(errno(locked.sync_all()), Some(libc::EIO));
    free.sync_all().unwrap();
    drop(locked);
    File::open(lasting.at("file")).unwrap().lock().unwrap();
    drop(free);
    // The same for POSIX locks, which end when the process closes any descriptor of the file.
    for name in ["held", "given back", "closed"] {
        fs::write(lasting.at(name), "x").unwrap();
    }
    let open = |name: &str| File::open(lasting.at(name)).unwrap();
    let [held, given_back, closed] = ["held", "given back", "closed"].map(open);
    for file in [&held, &given_back, &closed] {
        fcntl_lock(file, FlockOperation::LockShared).unwrap();
    }
    fcntl_lock(&given_back, FlockOperation::Unlock).unwrap();
    drop(closed.try_clone().unwrap());
    lasting.kill();
    assert_eq!(errno(held.sync_all()), Some(libc::EIO));
    given_back.sync_all().unwrap();
    closed.sync_all().unwrap();
    drop((held, given_back, closed));
    unmount(&mut lasting.mount);
}

#[test]
fn a_share_beneath_its_own_mountpoint_is_refused() {
    let _alone = crate::alone();
    let dir = common::tree();
    let share = Share::builder().shared_dir(dir.path().join("sub")).daemon(common::transomd());
    let error = Mount::start(share, dir.path(), options()).err().unwrap();
    assert!(matches!(error, MountError::Hidden { .. }), "{error}");
    assert!(fs::exists(dir.path().join("hello")).unwrap());
}

#[test]
fn a_daemon_that_offers_less_is_refused_and_one_that_does_not_is_taken() {
    needs_mounts!();
    let (host, at, dir) = (common::tree(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (other, socket) = (common::tree(), dir.path().join("s"));
    let mut daemon = Listening::start_with(host.path(), &socket, &["--writeback", "--posix-lock"]);
    let share = Share::builder().socket(&socket);
    let mut mounted = Mount::start(share, at.path(), options()).unwrap();
    let file = OpenOptions::new().append(true).open(at.path().join("hello")).unwrap();
    // Neither without write-back nor with another directory.
    for (shared, args) in [(host.path(), &["--posix-lock"][..]), (other.path(), &["--writeback", "--posix-lock"])] {
        daemon.kill();
        daemon = Listening::start_with(shared, &socket, args);
        // It ends when it is hung up on.
        assert!(daemon.0.wait().unwrap().success());
    }
    daemon = Listening::start_with(host.path(), &socket, &["--writeback", "--posix-lock"]);
    (&file).write_all(b"more\n").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read_to_string(host.path().join("hello")).unwrap(), "hello, world\nmore\n");
    drop(file);
    unmount(&mut mounted);
    drop(daemon);
}

#[test]
fn passthrough_and_reconnecting_are_refused_together() {
    let _alone = crate::alone();
    let dir = common::tree();
    let share = Share::builder().shared_dir(dir.path()).daemon(common::transomd());
    let both = Options { passthrough: true, ..options() };
    let error = Mount::start(share, "/nonexistent", both).err().unwrap();
    assert!(matches!(error, MountError::PassthroughWithReconnect), "{error}");
}
