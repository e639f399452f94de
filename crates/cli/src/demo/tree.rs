//! The files that the demonstration shares: by default this project's sources and those of the crates it is built from.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Limits that keep the demonstration meaningful, yet short enough for an emulated CPU.
const FILES_MAX: usize = 4000;
const BYTES_MAX: u64 = 48 << 20;
/// Directories that a build or git may change while the demonstration runs.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// The files below some directories, with their checksums.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Absolute paths, sorted, each with its checksum in hexadecimal.
    pub(super) files: Vec<(PathBuf, String)>,
    pub(super) bytes: u64,
}

impl Tree {
    /// Reads the files below `folders`, in this order, up to the limits; calls `advance` with the number of files read
    /// so far.
    pub(super) fn read(folders: &[PathBuf], mut advance: impl FnMut(usize)) -> io::Result<Self> {
        let mut tree = Self::default();
        for folder in folders {
            tree.add(folder, &mut advance)?;
        }
        tree.files.sort();
        Ok(tree)
    }

    fn add(&mut self, folder: &Path, advance: &mut impl FnMut(usize)) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            if self.files.len() >= FILES_MAX || self.bytes >= BYTES_MAX {
                return Ok(());
            }
            if kind.is_dir() && !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
                self.add(&path, advance)?;
            }
            // The guest gets a list with one path to a line.
            let is_listable = path.to_str().is_some_and(|path| !path.contains(['\n', '\\', '\'', '"']));
            if kind.is_file() && is_listable {
                let content = fs::read(&path)?;
                self.bytes += content.len() as u64;
                self.files.push((path, checksum(&content)));
                advance(self.files.len());
            }
        }
        Ok(())
    }

    /// Returns the paths, each terminated by a newline.
    pub(super) fn list(&self) -> String {
        self.files.iter().fold(String::new(), |list, (path, _)| list + &path.to_string_lossy() + "\n")
    }

    /// What `sha256sum` prints for the files.
    pub(super) fn sums(&self) -> String {
        self.files.iter().fold(String::new(), |mut sums, (path, sum)| {
            let _ = writeln!(sums, "{sum}  {}", path.display());
            sums
        })
    }
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(super) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_sums_that_sha256sum_prints() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("target")).unwrap();
        fs::write(folder.path().join("target/left-out"), "x").unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        let tree = Tree::read(&[folder.path().to_owned()], |_| {}).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let expected = format!(
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  {}\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  {}\n",
            at("a"),
            at("b")
        );
        assert_eq!((tree.sums(), tree.bytes), (expected, 3));
    }
}
