//! Requests that leave nothing behind, each repeated thousands of times; sessions; front ends.

use super::{
    driver::send_all,
    rows::{File, ROWS},
    scaled,
    usage::assert_flat,
};
use crate::host::Daemon;

/// Times that each request is sent before the first look, and three times as many before the second.
const COUNT: u64 = 1500;

#[test]
pub(super) fn a_request_that_leaves_nothing_takes_nothing_however_often_it_is_repeated() {
    // The directories that are not forgotten fill the table of inodes at once.
    let daemon = Daemon::executable_with(&["--xattr", "--birth-times", "--posix-lock", "--inode-limit", "1000"]);
    let (_front_end, mut session) = daemon.session();
    let created = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let file = File {
        nodeid: created.entry.nodeid.get(),
        fh: created.open.fh.get(),
        link: session.symlink(1, b"link-to-nothing", b"nothing").unwrap().nodeid.get(),
        dir_fh: session.opendir(1).unwrap(),
    };
    session.create(1, b"second", libc::O_RDWR as u32, 0o644).unwrap();
    session.write(file.nodeid, file.fh, 0, &[1; 65_536]).unwrap();
    let mut failing = Vec::new();
    for (what, requests) in ROWS {
        let mut successes = 0;
        assert_flat(&daemon, what, scaled(COUNT), |count| {
            successes += send_all(&mut session, (0..count).flat_map(|n| requests(file, n)));
        });
        let has_no_object = ["absent", "unknown", "short"].iter().any(|word| what.contains(word));
        if successes == 0 && !has_no_object {
            failing.push(what);
        }
    }
    assert!(failing.is_empty(), "{failing:?} never succeed");
}

#[test]
pub(super) fn sessions_that_begin_and_end_leave_nothing() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--flock"]);
    let (_front_end, mut session) = daemon.session();
    assert_flat(&daemon, "INIT, CREATE, SETLK, DESTROY", scaled(400), |count| {
        for _ in 0..count {
            session.init(transom_wire::ops::init::InitFlags::all()).unwrap();
            let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
            let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
            session.setlk(nodeid, fh, 1, libc::F_WRLCK as u32, false).unwrap();
            session.opendir(1).unwrap();
            session.destroy().unwrap();
        }
    });
    for gauge in ["transom_inodes", "transom_open_files", "transom_lock_owners"] {
        assert_eq!(daemon.metric(gauge), 0, "{gauge}");
    }
}

#[test]
fn front_ends_that_come_and_go_leave_nothing() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--flock"]);
    assert_flat(&daemon, "connections", scaled(20), |count| {
        for _ in 0..count {
            let (_front_end, mut session) = daemon.session();
            session.opendir(1).unwrap();
            session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        }
    });
}
