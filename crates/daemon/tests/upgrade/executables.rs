//! Executables that cannot take over: the present daemon goes on, and says why.

use std::{fs, path::Path};

use crate::{Guest, launch::Bench, refused, start, upgrade};

/// Runs the session of a guest through an upgrade to `script`, which must be refused because of `reason`.
#[track_caller]
fn refuses(script: &str, reason: &str) {
    let bench = Bench::with_executable();
    fs::write(bench.share().join("file"), "content").unwrap();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, libc::O_RDWR as u32).unwrap();
    let good = bench.path().join("good");
    fs::hard_link(bench.executable(), &good).unwrap();
    let bad = bench.path().join("bad");
    fs::write(&bad, script).unwrap();

    for _ in 0..3 {
        bench.replace_executable(&bad);
        let said = refused(&bench);
        assert!(said.contains(reason), "{said}");
        session.write(file, fh, 0, b"CONTENT").unwrap();
        assert_eq!(session.read(file, fh, 0, 100).unwrap(), b"CONTENT");
    }
    bench.replace_executable(&good);
    upgrade(&bench);
    assert_eq!(session.read(file, fh, 0, 100).unwrap(), b"CONTENT");
    drop(guest);
    for left in [&good, &bad] {
        fs::remove_file(left).unwrap();
    }
    let (status, said) = daemon.wait();
    assert!(status.success(), "{said}");
    assert!(said.contains(reason), "the log says why: {said}");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn a_program_that_ends_at_once_is_refused() {
    refuses("#!/bin/sh\nexit 7\n", "ended with status 7");
}

#[test]
fn a_file_that_is_no_program_is_refused() {
    refuses("\u{1}\u{2}\u{3}", "cannot start");
}

#[test]
fn an_executable_that_is_gone_is_refused() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    fs::remove_file(bench.executable()).unwrap();
    assert!(refused(&bench).contains("cannot start"));
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
#[ignore = "waits for the time limit of a program that hangs, 20 s"]
fn a_program_that_hangs_is_killed_and_refused() {
    refuses("#!/bin/sh\nexec sleep 600\n", "is not ready after");
}

#[test]
fn a_daemon_that_was_not_started_for_it_says_so() {
    let bench = Bench::new();
    let mut daemon = bench.start("--socket-path {S} --shared-dir {D}");
    let guest = Guest::begin(&mut daemon);
    assert!(refused(&bench).contains("--upgradable"));
    assert!(Path::new(&bench.socket()).exists());
    drop(guest);
}

#[test]
fn a_share_whose_directory_is_gone_is_not_upgraded() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let elsewhere = bench.path().join("elsewhere");
    fs::rename(bench.share(), &elsewhere).unwrap();
    assert!(refused(&bench).contains("ended with status 1"));
    guest.session.getattr(1, None).unwrap();
    fs::rename(&elsewhere, bench.share()).unwrap();
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}
