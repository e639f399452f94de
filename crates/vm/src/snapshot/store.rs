//! The snapshots that are kept: a directory for each key, with the guest's memory and QEMU's state.
//!
//! A snapshot is complete when its directory has its name. Whoever uses one has both files open, so that removing it
//! disturbs nobody. Its key holds the host's boot, so that no snapshot is used whose pages a crash of the host lost.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{key::Key, memory};

const MEMORY: &str = "memory";
const STATE: &str = "state";
const UNFINISHED: &str = ".new-";
/// How many are kept: the ones that were used last.
const KEPT_MAX: usize = 4;
/// An unfinished snapshot of this age belongs to a process that was killed.
const UNFINISHED_MAX: Duration = Duration::from_secs(3600);

/// The directory of all snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// A snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The guest's memory; holes are zeros.
    pub(crate) memory: File,
    /// What QEMU writes when it migrates.
    pub(crate) state: Vec<u8>,
}

impl Store {
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Returns the snapshot of `key`, whose memory has `memory_len` bytes, if there is one.
    pub(crate) fn find(&self, key: &Key, memory_len: u64) -> Option<Snapshot> {
        let dir = self.dir.join(key.name());
        let state = fs::read(dir.join(STATE)).ok()?;
        let memory = File::open(dir.join(MEMORY)).ok()?;
        if memory.metadata().ok()?.len() != memory_len || state.is_empty() {
            return None;
        }
        // The time of the last use decides what stays.
        let _ = File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
        Some(Snapshot { memory, state })
    }

    /// Keeps a snapshot, and removes the ones that were not used for longest.
    pub(crate) fn keep(&self, key: &Key, memory: &File, state: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        fs::set_permissions(&self.dir, Permissions::from_mode(0o700))?;
        self.tidy(KEPT_MAX - 1);
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.dir)?;
        memory::copy(memory, &File::create(unfinished.path().join(MEMORY))?)?;
        fs::write(unfinished.path().join(STATE), state)?;
        match fs::rename(unfinished.path(), self.dir.join(key.name())) {
            Ok(()) => {
                // It has another name now.
                let _ = unfinished.keep();
                Ok(())
            }
            // Another run was faster.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a snapshot that does not work.
    pub(crate) fn forget(&self, key: &Key) {
        let _ = fs::remove_dir_all(self.dir.join(key.name()));
    }

    /// Removes all but the `kept` snapshots that were used last, and what killed processes left.
    fn tidy(&self, kept: usize) {
        let mut complete = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let Ok(modified) = modified else { continue };
            if !entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                complete.push((modified, entry.path()));
            } else if modified.elapsed().is_ok_and(|age| age > UNFINISHED_MAX) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        complete.sort();
        let surplus = complete.len().saturating_sub(kept);
        for (_, path) in complete.drain(..surplus) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    const LEN: u64 = 4 << 20;

    fn key(word: &str) -> Key {
        Key::of([word.as_bytes()])
    }

    fn keep(store: &Store, word: &str) {
        let mut memory = tempfile::tempfile().unwrap();
        memory.set_len(LEN).unwrap();
        memory.seek(SeekFrom::Start(1 << 20)).unwrap();
        memory.write_all(word.as_bytes()).unwrap();
        store.keep(&key(word), &memory, word.as_bytes()).unwrap();
    }

    #[test]
    fn what_is_kept_is_found_and_only_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("machines"));
        assert!(store.find(&key("a"), LEN).is_none());
        keep(&store, "a");
        keep(&store, "a");
        let Snapshot { mut memory, state } = store.find(&key("a"), LEN).unwrap();
        let mut bytes = Vec::new();
        memory.read_to_end(&mut bytes).unwrap();
        let mut expected = vec![0; LEN as usize];
        expected[1 << 20] = b'a';
        assert!(bytes == expected && state == b"a");
        assert!(store.find(&key("b"), LEN).is_none());
        assert!(store.find(&key("a"), LEN * 2).is_none());
        store.forget(&key("a"));
        assert!(store.find(&key("a"), LEN).is_none());
        assert_eq!(fs::read_dir(&store.dir).unwrap().count(), 0);
    }

    #[test]
    fn the_ones_used_last_stay_and_so_does_what_others_are_writing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let age = |name: &str, seconds: u64| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            File::open(dir.path().join(name)).unwrap().set_modified(time).unwrap();
        };
        for (number, word) in ["1", "2", "3", "4"].into_iter().enumerate() {
            keep(&store, word);
            age(&key(word).name(), 1000 - number as u64);
        }
        for (name, seconds) in [(".new-dead", 7200), (".new-live", 60)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            age(name, seconds);
        }
        assert!(store.find(&key("1"), LEN).is_some(), "which makes it the last one used");
        keep(&store, "5");
        for (word, stays) in [("1", true), ("2", false), ("3", true), ("4", true), ("5", true)] {
            assert_eq!(store.find(&key(word), LEN).is_some(), stays, "{word}");
        }
        assert!(!dir.path().join(".new-dead").exists() && dir.path().join(".new-live").exists());
    }
}
