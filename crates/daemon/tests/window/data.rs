//! What is read and written through the window is what the file holds.

use std::{
    fs, io,
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, Command},
    thread,
};

use rustix::io::Errno;
use transom_frontend::{
    Options,
    fuse::Session,
    window::{Counts, Rules},
};
use transom_host::passthrough::Config;
use transom_wire::ops::init::InitFlags;

use crate::host::{Kind, QUEUES, RANGE, RANGES, Share, contents, lookup};

#[test]
fn window_file_and_requests_are_one_copy_of_the_data() {
    for share in Share::each() {
        let path = share.file("file", 3 * RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let window = front_end.expect_window();
        // 1. Another place of the file at each place of the window; the first answer finds the guest able to read.
        for (file_range, window_range) in [(0, 5), (2, 0), (1, 7)] {
            session.setupmapping(nodeid, file_range * RANGE, RANGE, window_range * RANGE, true).unwrap();
            let expected = &contents(3 * RANGE, 1)[(file_range * RANGE) as usize..][..RANGE as usize];
            assert!(window.read(window_range * RANGE, RANGE as usize).unwrap() == expected);
        }
        // 2. What the guest stores is in the file and in the answer to READ.
        window.store(5 * RANGE + 100, b"from the guest").unwrap();
        assert_eq!(&fs::read(&path).unwrap()[100..114], b"from the guest");
        let fh = session.open(nodeid, libc::O_RDWR as u32).unwrap();
        assert_eq!(session.read(nodeid, fh, 100, 14).unwrap(), b"from the guest");
        // 3. What the host or a WRITE writes is in the window.
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"from the host", 2 * RANGE).unwrap();
        assert_eq!(window.read(0, 13).unwrap(), b"from the host");
        session.write(nodeid, fh, RANGE + 4095, b"by a request").unwrap();
        assert_eq!(window.read(7 * RANGE + 4095, 12).unwrap(), b"by a request");
        session.fsync(nodeid, fh).unwrap();
        session.release(nodeid, fh).unwrap();
        share.agrees(&front_end);
        // 4. The guest removes one, and destroys the rest.
        session.removemapping(nodeid, &[(5 * RANGE, RANGE)]).unwrap();
        assert!(window.read(5 * RANGE, 1).is_err() && window.read(0, 1).is_ok());
        share.agrees(&front_end);
        session.destroy().unwrap();
        assert_eq!(window.mappings(), []);
        share.agrees(&front_end);
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * RANGE);
    }
}

#[test]
fn an_upgrade_is_an_answer_without_a_message() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, RANGE, false).unwrap();
        let before = front_end.expect_window().counts();
        session.setupmapping(nodeid, 0, RANGE, RANGE, true).unwrap();
        session.setupmapping(nodeid, 0, RANGE, RANGE, false).unwrap();
        assert_eq!(front_end.expect_window().counts(), before);
        front_end.expect_window().store(RANGE, b"written").unwrap();
        assert_eq!(&fs::read(&path).unwrap()[..7], b"written");
        share.agrees(&front_end);
    }
}

#[test]
fn what_is_mapped_over_something_replaces_it() {
    for share in Share::each() {
        let paths = [1, 2].map(|seed| share.file(&format!("file{seed}"), 2 * RANGE, seed));
        let (front_end, mut session) = share.session();
        let nodeids = [lookup(&mut session, &paths[0]), lookup(&mut session, &paths[1])];
        let window = front_end.expect_window();
        session.setupmapping(nodeids[0], 0, 2 * RANGE, 2 * RANGE, true).unwrap();
        session.setupmapping(nodeids[1], RANGE, RANGE, 2 * RANGE, true).unwrap();
        assert_eq!(window.read(2 * RANGE, 5).unwrap(), contents(2 * RANGE, 2)[RANGE as usize..][..5]);
        assert_eq!(window.read(3 * RANGE, 5).unwrap(), contents(2 * RANGE, 1)[RANGE as usize..][..5]);
        assert_eq!(window.mappings().len(), 2);
        share.agrees(&front_end);
        session.removemapping(nodeids[0], &[(0, RANGES * RANGE)]).unwrap();
        assert_eq!(window.mappings(), []);
        let Counts { maps, unmaps, barriers } = window.counts();
        assert_eq!((maps, unmaps), (3, 3));
        assert_eq!(barriers >= maps, share.kind == Kind::Qemu);
        share.agrees(&front_end);
    }
}

/// The front end answers before it maps, and the daemon is told that this one does not: the guest finds nothing there.
#[test]
fn without_the_barrier_a_fresh_mapping_is_missed() {
    let share = Share::thread(Kind::Crosvm);
    let path = share.file("file", RANGE, 1);
    let (front_end, mut session) = share.session_with(Rules { shows_late: true, ..Rules::CROSVM });
    let nodeid = lookup(&mut session, &path);
    session.setupmapping(nodeid, 0, RANGE, 0, false).unwrap();
    assert!(front_end.expect_window().read(0, 1).is_err());
    session.setupmapping(nodeid, 0, RANGE, RANGE, false).unwrap();
    assert!(front_end.expect_window().read(0, 1).is_ok());
    share.agrees(&front_end);
}

#[test]
fn a_working_set_of_four_windows_is_read_rightly() {
    for share in Share::each() {
        let path = share.file("file", 4 * RANGES * RANGE, 9);
        let expected = fs::read(&path).unwrap();
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        for file_range in (0..4 * RANGES).chain((0..4 * RANGES).rev()) {
            let at = file_range * 5 % RANGES * RANGE;
            session.setupmapping(nodeid, file_range * RANGE, RANGE, at, file_range % 2 == 0).unwrap();
            let expected = &expected[(file_range * RANGE) as usize..][..RANGE as usize];
            assert!(front_end.expect_window().read(at, RANGE as usize).unwrap() == expected, "range {file_range}");
        }
        share.agrees(&front_end);
    }
}

#[test]
fn a_read_only_share_has_no_window_where_the_guest_could_write_through_it() {
    for share in [Share::process(Kind::Qemu, "--readonly"), Share::process(Kind::Crosvm, "--readonly")] {
        let path = share.file("file", RANGE, 1);
        let front_end = share.connect(Options { window: Some(share.kind.rules()), ..Options::default() });
        let mut session = Session::new(front_end.start_queue(QUEUES[0]).unwrap());
        let flags = InitFlags::from_bits_retain(session.init(InitFlags::all()).unwrap().flags.get().into());
        let nodeid = lookup(&mut session, &path);
        if share.kind == Kind::Qemu {
            assert!(front_end.window.is_none() && !flags.contains(InitFlags::MAP_ALIGNMENT));
            assert_eq!(session.setupmapping(nodeid, 0, RANGE, 0, false).unwrap_err().errno(), Some(Errno::NOSYS));
            continue;
        }
        let window = front_end.expect_window();
        assert_eq!(session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap_err().errno(), Some(Errno::ROFS));
        session.setupmapping(nodeid, 0, RANGE, 0, false).unwrap();
        assert_eq!(session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap_err().errno(), Some(Errno::ROFS));
        assert_eq!(window.read(0, 9).unwrap(), contents(9, 1));
        assert!(window.store(0, b"x").is_err());
        assert!(!window.mappings()[0].is_writable);
        share.agrees(&front_end);
    }
    // The file system by itself refuses too.
    let share = Share::thread_with(Kind::Qemu, Config { readonly: true, ..Config::default() });
    let path = share.file("file", RANGE, 1);
    let (front_end, mut session) = share.session();
    let nodeid = lookup(&mut session, &path);
    for writes in [false, true] {
        assert_eq!(session.setupmapping(nodeid, 0, RANGE, 0, writes).unwrap_err().errno(), Some(Errno::ROFS));
    }
    share.agrees(&front_end);
}

/// Runs the program at `path`, which a child of another test may hold open for writing until it has become that
/// program.
fn start(path: &Path) -> Child {
    loop {
        match Command::new(path).arg("3600").spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

/// A program that runs is such a file, even to root.
#[test]
fn a_file_that_the_daemon_may_not_write_is_never_writable() {
    struct Running(Child);
    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }
    for share in Share::each() {
        let path = share.path().join("program");
        fs::copy("/bin/sleep", &path).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(RANGE).unwrap();
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let _running = Running(start(&path));
        let mut map =
            |writes| session.setupmapping(nodeid, 0, RANGE, 0, writes).map_err(|error| error.errno().unwrap());
        assert_eq!(map(true), Err(Errno::TXTBSY));
        match share.kind {
            Kind::Qemu => assert_eq!(map(false), Err(Errno::TXTBSY)),
            Kind::Crosvm => {
                map(false).unwrap();
                assert_eq!(map(true), Err(Errno::TXTBSY));
                assert_eq!(front_end.expect_window().read(0, 4).unwrap(), b"\x7fELF");
                assert!(front_end.expect_window().store(0, b"x").is_err());
            }
        }
        share.agrees(&front_end);
    }
}
