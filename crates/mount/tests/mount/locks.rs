//! Locks of a mount that reach the host.

use std::{fs, process::Command};

use rustix::fs::{FlockOperation, fcntl_lock};

use super::{common, needs_mounts, start, tree, unmount};

/// A file that anybody has open for writing cannot be executed.
#[test]
fn the_host_executes_a_program_that_a_reader_of_the_mount_has_locked() {
    needs_mounts!();
    for option in ["--cache=auto", "--readonly"] {
        let (dir, at) = (tree(), tempfile::tempdir().unwrap());
        let program = dir.path().join("program");
        // Another process writes it: a descriptor for writing here would be inherited by what other tests start.
        assert!(Command::new("cp").arg("/bin/true").arg(&program).status().unwrap().success());
        let mut daemon = common::transomd();
        daemon.args.extend(["--posix-lock", option].map(Into::into));
        let mut mounted = start(&daemon, dir.path(), at.path());
        let reader = fs::File::open(at.path().join("program")).unwrap();
        fcntl_lock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
        let status = Command::new(&program).status().unwrap_or_else(|error| panic!("{option}: {error}"));
        assert!(status.success());
        // The lock is the host's too.
        let writer = fs::File::options().write(true).open(&program).unwrap();
        assert!(fcntl_lock(&writer, FlockOperation::NonBlockingLockExclusive).is_err(), "{option}");
        drop((reader, writer));
        unmount(&mut mounted);
    }
}
