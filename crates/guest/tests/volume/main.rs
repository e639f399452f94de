//! Volumes and paths with real servers in the same process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod attributes;
mod created;
mod endless;
mod failures;
mod files;
mod fsx;
mod group;
mod kept;
mod limits;
mod locks;
mod model;
mod own;
mod paged;
mod paths;
mod referenced;
mod shared;
mod table;
mod user_memory;
mod walk;
mod written_back;

#[path = "../session/memory.rs"]
mod memory;
#[allow(dead_code, reason = "shared with the tests of the session")]
#[path = "../session/peer.rs"]
mod peer;
#[allow(dead_code, reason = "shared with the tests of the session")]
#[path = "../session/script.rs"]
mod script;

use std::sync::Arc;

use transom_conformance::memfs::MemFs;
use transom_guest::{
    cache::{CacheMode, CacheOptions},
    fs::Fs,
};
use transom_host::{
    passthrough::{Config, Passthrough},
    server::FileSystem,
};

use peer::{Peer, Plain};

/// A share in memory.
fn in_memory(mode: CacheMode) -> (Arc<Peer<MemFs>>, Fs<Plain>) {
    let peer = Peer::new(MemFs::default());
    let fs = mount(&peer, mode);
    (peer, fs)
}

/// A share of a directory of the host.
fn on_host(mode: CacheMode) -> (tempfile::TempDir, Fs<Plain>) {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::new(Passthrough::open(dir.path(), Config { xattr: true, ..Config::default() }).unwrap());
    (dir, mount(&peer, mode))
}

fn mount<F: FileSystem + 'static>(peer: &Arc<Peer<F>>, mode: CacheMode) -> Fs<Plain> {
    Fs::mount(peer::session(peer), CacheOptions { mode, ..CacheOptions::default() })
}

const MODES: [CacheMode; 3] = [CacheMode::None, CacheMode::Auto, CacheMode::Always];
