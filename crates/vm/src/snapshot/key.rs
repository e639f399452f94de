//! The key of a snapshot: a hash of all that the snapshot depends on.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use sha2::{Digest, Sha256};

/// The identity of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    boot: String,
    hash: String,
}

impl Key {
    /// Returns the key of what these parts describe, for one boot of the host.
    pub(crate) fn of<'a>(boot: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // With lengths, no two lists of parts are the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hash = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { boot: boot.to_owned(), hash }
    }

    /// Returns the name of the snapshot's directory.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.boot, self.hash)
    }

    /// Returns whether a name is that of a snapshot of this boot.
    pub(crate) fn is_of_this_boot(&self, name: &str) -> bool {
        name.strip_prefix(&self.boot).is_some_and(|rest| rest.starts_with('-'))
    }
}

/// Names this boot of the host.
pub(crate) fn of_boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.chars().filter(char::is_ascii_hexdigit).take(16).collect())
}

/// Describes a file or directory so that another version of it has another description.
pub(crate) fn identity(path: &Path) -> io::Result<String> {
    let path = fs::canonicalize(path)?;
    let found = fs::metadata(&path)?;
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    Ok(format!("{path:?} {}:{} {} {times:?}", found.dev(), found.ino(), found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_have_another_key() {
        let of = |parts: &[&'static [u8]]| Key::of("boot", parts.iter().copied());
        let keys = [of(&[]), of(&[b""]), of(&[b"ab"]), of(&[b"a", b"b"]), Key::of("other", [])];
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(number));
        }
        assert!(keys[0].is_of_this_boot(&keys[1].name()) && !keys[0].is_of_this_boot(&keys[4].name()));
    }

    #[test]
    fn a_changed_file_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "a").unwrap();
        let before = identity(&path).unwrap();
        assert_eq!(identity(&path).unwrap(), before);
        fs::write(dir.path().join("new"), "b").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_ne!(identity(&path).unwrap(), before);
        assert!(identity(&dir.path().join("absent")).is_err());
    }
}
