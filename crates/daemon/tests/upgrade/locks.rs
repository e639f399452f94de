//! Locks on the host are held without a gap.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use crate::{Guest, REQUEST, launch::Bench, refused, start, upgrade};

/// `F_WRLCK`, `F_UNLCK`.
const WRITE: u32 = libc::F_WRLCK as u32;
const UNLOCK: u32 = libc::F_UNLCK as u32;

/// Whether somebody of the host can take a POSIX lock.
fn is_free(path: &std::path::Path) -> bool {
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\ntry: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\n\
                  except OSError: sys.exit(1)\n";
    Command::new("python3").args(["-c", script]).arg(path).stdin(Stdio::null()).status().unwrap().success()
}

#[test]
fn posix_locks_are_held_on_and_end_as_ever() {
    let bench = Bench::with_executable();
    let path = bench.share().join("file");
    fs::write(&path, "content").unwrap();
    let mut daemon = start(&bench, "--posix-lock");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, libc::O_RDWR as u32).unwrap();
    session.setlk(file, fh, 7, WRITE, false).unwrap();
    assert!(!is_free(&path));
    for _ in 0..2 {
        upgrade(&bench);
        assert!(!is_free(&path), "the lock has survived");
        session.setlk(file, fh, 8, WRITE, false).unwrap_err();
    }
    session.setlk(file, fh, 7, UNLOCK, false).unwrap();
    assert!(is_free(&path));
    // By the end of the open file.
    session.setlk(file, fh, 9, WRITE, false).unwrap();
    upgrade(&bench);
    assert!(!is_free(&path));
    session.release(file, fh).unwrap();
    assert!(is_free(&path));
    drop(guest);
}

#[test]
fn a_refused_upgrade_leaves_locks_as_they_were() {
    let bench = Bench::with_executable();
    let path = bench.share().join("file");
    fs::write(&path, "content").unwrap();
    let mut daemon = start(&bench, "--posix-lock --keep-serving");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, libc::O_RDWR as u32).unwrap();
    session.setlk(file, fh, 7, WRITE, false).unwrap();
    // One refuses before it has the locks. The other lacks a queue, which shows when it has them.
    let _another = guest.front_end.start_queue(REQUEST + 1).unwrap();
    let others =
        [("--posix-lock", "--no-posix-lock", "POSIX_LOCKS"), ("--keep-serving", "--num-request-queues=1", "set-up")];
    for (number, (option, other, reason)) in others.into_iter().enumerate() {
        let real = env!("CARGO_BIN_EXE_transomd");
        let script = format!(
            "#!/bin/sh\nfor word; do shift; [ $word != {option} ] || word={other}; set -- \"$@\" \"$word\"; done\n\
             exec {real} \"$@\"\n"
        );
        let path_of_other = bench.path().join(format!("other{number}"));
        fs::write(&path_of_other, script).unwrap();
        bench.replace_executable(&path_of_other);
        for _ in 0..3 {
            let said = refused(&bench);
            assert!(said.contains(reason), "{said}");
            assert!(!is_free(&path));
            session.setlk(file, fh, 8, WRITE, false).unwrap_err();
        }
    }
    session.setlk(file, fh, 7, UNLOCK, false).unwrap();
    assert!(is_free(&path));
    drop(guest);
}

#[test]
fn flock_locks_are_held_on() {
    let bench = Bench::with_executable();
    let path = bench.share().join("file");
    fs::write(&path, "content").unwrap();
    let mut daemon = start(&bench, "--flock");
    let mut guest = Guest::begin(&mut daemon);
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, libc::O_RDWR as u32).unwrap();
    session.flock(file, fh, 7, WRITE).unwrap();
    let is_free = || File::open(&path).unwrap().try_lock().is_ok();
    assert!(!is_free());
    for _ in 0..2 {
        upgrade(&bench);
        assert!(!is_free());
    }
    session.flock(file, fh, 7, UNLOCK).unwrap();
    assert!(is_free());
    drop(guest);
}
