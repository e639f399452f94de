//! The daemons that tests run against, and what they share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs;

use tempfile::TempDir;
use transom_user::daemon::Program;
use transom_vm::{packages::Cache, peer};

/// Why the peer is left out.
pub(crate) const NO_PEER: &str = "there is no virtiofsd 1.14 in the cache; `transom-fetch peer --packaged` fetches it";

/// `transomd`, and the peer where it is built.
pub(crate) fn daemons() -> Vec<Program> {
    let peer = peer();
    if peer.is_none() {
        println!("SKIPPED: {NO_PEER}");
    }
    [transomd()].into_iter().chain(peer).collect()
}

/// The daemon that was built with these tests.
pub(crate) fn transomd() -> Program {
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("transomd");
    assert!(built.is_file(), "{} is not built: `cargo build --workspace` does", built.display());
    Program::new(built)
}

/// virtiofsd, where it is in the cache.
pub(crate) fn peer() -> Option<Program> {
    Cache::locate().ok().and_then(|cache| peer::existing(&cache, peer::Build::Packaged)).map(Program::new)
}

/// A directory with a few files, to be shared.
pub(crate) fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hello"), "hello, world\n").unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/large"), vec![7; 3 << 20]).unwrap();
    dir
}

/// An empty directory on a file system with all that a disk's has, where there is one.
pub(crate) fn on_disk() -> TempDir {
    tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap()
}
