//! Times of files that the kernel maps by itself.

use std::{
    fs::{self, File},
    time::UNIX_EPOCH,
};

use crate::{
    common, needs_mounts,
    passthrough::{Mapped, Passing, has_passthrough, needs_passthrough, read_write},
};

#[test]
fn a_store_through_a_mapping_moves_the_times_once_it_is_synced_closed_or_unmapped() {
    needs_passthrough!();
    for cache in ["--cache=auto", "--cache=always", "--cache=never"] {
        for dir in [common::on_disk(), tempfile::tempdir_in("/dev/shm").unwrap()] {
            let share = Passing::start(dir, &[cache]);
            for end in ["sync", "unmap", "close", "outlive"] {
                store_and_stat(&share, cache, end);
            }
            // The same of a file that the mount creates.
            let file = File::options().read(true).write(true).create_new(true).open(share.at("new")).unwrap();
            file.set_len(4096).unwrap();
            drop(file);
            store_and_stat(&share, cache, "new");
            share.end();
        }
    }
}

/// Stores into a file of which the kernel holds attributes, ends as `name` says, and compares the times with those from
/// before.
fn store_and_stat(share: &Passing, cache: &str, name: &str) {
    let path = share.at(name);
    let is_new = path.exists();
    if !is_new {
        fs::write(share.host(name), vec![0; 4096]).unwrap();
    }
    // Long ago, so that every other time is another.
    let long_ago = fs::FileTimes::new().set_modified(UNIX_EPOCH);
    File::options().write(true).open(&path).unwrap().set_times(long_ago).unwrap();
    let modified = || fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(modified(), UNIX_EPOCH);
    let file = read_write(&path);
    let mapped = Mapped::new(&file, 4096);
    let file = (name != "outlive").then_some(file);
    if file.is_none() {
        // A mapping whose file is closed is not known to the mount.
        assert_eq!(modified(), UNIX_EPOCH);
    }
    mapped.store(0, b"stored");
    match (name, file) {
        ("sync", Some(file)) => file.sync_all().unwrap(),
        ("unmap", file) => {
            drop(mapped);
            drop(file);
        }
        (_, file) => drop(file),
    }
    assert_ne!(modified(), UNIX_EPOCH, "{cache} {name}");
    assert_eq!(modified(), fs::metadata(share.host(name)).unwrap().modified().unwrap(), "{cache} {name}");
}
