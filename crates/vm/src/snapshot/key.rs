//! The key of a snapshot: a hash of all that the snapshot depends on.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use sha2::{Digest, Sha256};

/// The identity of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Returns the key of what these parts describe.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // With lengths, no two lists of parts are the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the name of the snapshot's directory.
    pub(crate) fn name(&self) -> String {
        self.0.clone()
    }
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
        let keys = [Key::of([]), Key::of([&b""[..]]), Key::of([&b"ab"[..]]), Key::of([&b"a"[..], b"b"])];
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(number));
        }
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
