//! The snapshots that are kept: a directory for each key, with the guest's memory and QEMU's state.
//!
//! A snapshot is complete when its directory has its name, and is renamed before it is removed. Whoever uses one has
//! its files open, so that removing it disturbs nobody. Names begin with the host's boot, so that no snapshot is used
//! whose pages a crash of the host lost.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{Mode, OFlags, openat};

use super::{
    key::{Key, identity},
    memory,
};

const MEMORY: &str = "memory";
const STATE: &str = "state";
/// The files that the memory comes from, as they were: lines of JSON.
const SOURCES: &str = "sources";
const UNFINISHED: &str = ".new-";
/// What follows the name of a snapshot that does not work for a kind of machine: a file with the reason.
const REFUSED: &str = ".refused";
/// How many are kept: the ones that were used last.
const KEPT_MAX: usize = 4;
/// An unfinished snapshot of this age belongs to a process that was killed.
const UNFINISHED_MAX: Duration = Duration::from_secs(600);

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
    /// Returns the store in `dir`, which is created.
    ///
    /// # Errors
    ///
    /// Returns an error if this user cannot keep anything there.
    pub(crate) fn at(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        tempfile::tempfile_in(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the snapshot of `key`, whose memory has `memory_len` bytes, if there is one that works.
    pub(crate) fn find(&self, key: &Key, memory_len: u64) -> Option<Snapshot> {
        // One directory, even if another one gets its name meanwhile.
        let dir = File::open(self.dir.join(key.name())).ok()?;
        let file = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            openat(&dir, name, flags, Mode::empty()).map(File::from).ok()
        };
        let mut sources = String::new();
        file(SOURCES)?.read_to_string(&mut sources).ok()?;
        let mut state = Vec::new();
        file(STATE)?.read_to_end(&mut state).ok()?;
        let memory = file(MEMORY)?;
        if memory.metadata().ok()?.len() != memory_len || state.is_empty() || !are_unchanged(&sources) {
            return None;
        }
        // The time of the last use decides what stays.
        let _ = dir.set_modified(SystemTime::now());
        Some(Snapshot { memory, state })
    }

    /// Keeps a snapshot that comes from the files `sources`, and removes the ones that were not used for longest.
    pub(crate) fn keep(&self, key: &Key, memory: &File, state: &[u8], sources: &[PathBuf]) -> io::Result<()> {
        self.tidy(key, KEPT_MAX - 1);
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.dir)?;
        memory::copy(memory, &File::create(unfinished.path().join(MEMORY))?)?;
        fs::write(unfinished.path().join(STATE), state)?;
        fs::write(unfinished.path().join(SOURCES), described(sources)?)?;
        // One that works has another name by now only if it is of another run, and one that does not is in the way.
        if self.find(key, memory.metadata()?.len()).is_some() {
            return Ok(());
        }
        self.forget(key);
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

    /// Removes a snapshot.
    pub(crate) fn forget(&self, key: &Key) {
        self.remove(&self.dir.join(key.name()));
    }

    /// Keeps machines of this kind from being resumed, until the host boots.
    pub(crate) fn refuse(&self, key: &Key, why: &str) {
        self.forget(key);
        let _ = fs::write(self.dir.join(key.name() + REFUSED), why);
    }

    /// Returns why machines of this kind are not resumed.
    pub(crate) fn refusal(&self, key: &Key) -> Option<String> {
        fs::read_to_string(self.dir.join(key.name() + REFUSED)).ok()
    }

    /// Removes a directory, such that it is whole as long as it has its name.
    fn remove(&self, path: &Path) {
        let Ok(grave) = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.dir) else { return };
        // Removed with the directory that it is in now.
        let _ = fs::rename(path, grave.path().join("removed"));
    }

    /// Removes all but the `kept` snapshots that were used last, those of earlier boots, and what killed processes
    /// left.
    fn tidy(&self, key: &Key, kept: usize) {
        let mut complete = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let (Ok(modified), name) = (modified, entry.file_name()) else { continue };
            let name = name.to_string_lossy();
            if name.starts_with(UNFINISHED) {
                if modified.elapsed().is_ok_and(|age| age > UNFINISHED_MAX) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            } else if !key.is_of_this_boot(&name) {
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            } else if !name.ends_with(REFUSED) {
                complete.push((modified, entry.path()));
            }
        }
        complete.sort();
        let surplus = complete.len().saturating_sub(kept);
        for (_, path) in complete.drain(..surplus) {
            self.remove(&path);
        }
    }
}

/// Describes files as they are now.
fn described(sources: &[PathBuf]) -> io::Result<String> {
    let lines = sources.iter().map(|path| Ok(serde_json::to_string(&(path, identity(path)?))? + "\n"));
    lines.collect()
}

/// Returns whether files are as they were described.
fn are_unchanged(sources: &str) -> bool {
    sources.lines().all(|line| {
        serde_json::from_str::<(PathBuf, String)>(line)
            .is_ok_and(|(path, then)| identity(&path).is_ok_and(|now| now == then))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    const LEN: u64 = 4 << 20;

    fn key(word: &str) -> Key {
        Key::of("boot", [word.as_bytes()])
    }

    fn keep(store: &Store, word: &str) {
        let mut memory = tempfile::tempfile().unwrap();
        memory.set_len(LEN).unwrap();
        memory.seek(SeekFrom::Start(1 << 20)).unwrap();
        memory.write_all(word.as_bytes()).unwrap();
        store.keep(&key(word), &memory, word.as_bytes(), &[]).unwrap();
    }

    #[test]
    fn what_is_kept_is_found_and_only_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("machines")).unwrap();
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
        let store = Store::at(dir.path()).unwrap();
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

    #[test]
    fn a_snapshot_of_which_a_part_is_lost_or_a_source_has_changed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("machines")).unwrap();
        let source = dir.path().join("module.ko");
        let keep = || {
            let memory = tempfile::tempfile().unwrap();
            memory.set_len(LEN).unwrap();
            store.keep(&key("a"), &memory, b"state", std::slice::from_ref(&source)).unwrap();
        };
        let path = store.dir.join(key("a").name());
        fs::write(&source, "one").unwrap();
        keep();
        assert!(store.find(&key("a"), LEN).is_some());
        for part in [MEMORY, STATE, SOURCES] {
            fs::remove_file(path.join(part)).unwrap();
            assert!(store.find(&key("a"), LEN).is_none(), "{part}");
            keep();
            assert!(store.find(&key("a"), LEN).is_some(), "{part}");
        }
        fs::write(&source, "another").unwrap();
        assert!(store.find(&key("a"), LEN).is_none());
        keep();
        assert!(store.find(&key("a"), LEN).is_some());
    }

    #[test]
    fn a_kind_that_is_refused_stays_so_and_what_is_of_another_boot_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path()).unwrap();
        keep(&store, "a");
        store.refuse(&key("a"), "no hot-plug");
        assert!(store.find(&key("a"), LEN).is_none());
        fs::create_dir(dir.path().join("earlier-0123")).unwrap();
        fs::write(dir.path().join("earlier-4567.refused"), "").unwrap();
        keep(&store, "b");
        assert_eq!(store.refusal(&key("a")).as_deref(), Some("no hot-plug"));
        assert_eq!(store.refusal(&key("b")), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
