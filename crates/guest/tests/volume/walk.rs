//! Walks of a tree whose names and attributes are all cached: what they still ask.

use std::{fs, path::Path};

use transom_guest::{
    cache::{CacheMode, CacheOptions},
    fs::Fs,
    session::SessionConfig,
};
use transom_host::passthrough::{Config, Passthrough};

use crate::{
    group::{member, place},
    peer::{self, Peer, Plain},
};

const FILES_PER_DIRECTORY: usize = 100;
const DIRECTORIES_PER_DIRECTORY: usize = 50;

fn make(dir: &Path, count: usize) {
    for number in 0..count {
        let below = number / FILES_PER_DIRECTORY;
        let directory = dir.join(format!("{}/{below}", below / DIRECTORIES_PER_DIRECTORY));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), "x").unwrap();
    }
}

/// Returns the number of files.
fn walk(fs: &Fs<Plain>, dir: &str) -> usize {
    let mut files = 0;
    for entry in fs.read_dir(if dir.is_empty() { "." } else { dir }).unwrap() {
        let path = format!("{dir}{}", String::from_utf8(entry.unwrap().name).unwrap());
        files += match fs.symlink_metadata(&path).unwrap().is_dir() {
            true => walk(fs, &format!("{path}/")),
            false => 1,
        };
    }
    files
}

fn walks(count: usize) {
    let (dir, group) = (tempfile::tempdir().unwrap(), place());
    make(dir.path(), count);
    let options = CacheOptions::default();
    let shared = member(group.path(), dir.path(), Config::default(), SessionConfig::default(), options);
    let peer = Peer::new(Passthrough::open(dir.path(), Config::default()).unwrap());
    let always = Fs::mount(peer::session(&peer), CacheOptions { mode: CacheMode::Always, ..options });
    for (what, (peer, fs)) in [("shared", shared), ("always", (peer, always))] {
        for number in 1..=3 {
            let before = peer.counts();
            assert_eq!(walk(&fs, ""), count);
            let mut asked = peer.counts();
            asked.iter_mut().for_each(|(name, count)| *count -= before.get(name).copied().unwrap_or_default());
            asked.retain(|_, count| *count > 0);
            println!("{what}, walk {number} of {count} files: {asked:?}");
            assert!(number < 3 || what == "always" || asked.is_empty(), "{what}: {asked:?}");
        }
    }
}

#[test]
fn a_walk_asks_nothing_once_all_is_cached() {
    walks(2_000);
}

/// As many names as are nearly the most that are cached: `--ignored a_walk_of_50000`, half a minute.
#[test]
#[ignore = "takes half a minute"]
fn a_walk_of_50000_files_asks_nothing_once_all_is_cached() {
    walks(50_000);
}
