//! What is in a directory, for a comparison of two.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// A file, directory, link or pipe. Device nodes are not listed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// Of what is not a directory: those of directories depend on the order of unpacking.
    mtime: Option<i64>,
    content: Content,
    /// The first path of the same inode.
    first: PathBuf,
}

#[derive(PartialEq, Eq)]
enum Content {
    File(Vec<u8>),
    Link(PathBuf),
    Other,
}

/// Returns everything in `root`, by path.
pub(crate) fn of(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut inodes = HashMap::new();
    add(root, Path::new(""), &mut inodes, &mut found);
    found
}

fn add(root: &Path, path: &Path, inodes: &mut HashMap<u64, PathBuf>, found: &mut BTreeMap<PathBuf, Entry>) {
    let at = root.join(path);
    let meta = fs::symlink_metadata(&at).unwrap();
    let kind = meta.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return;
    }
    let content = if kind.is_file() {
        Content::File(fs::read(&at).unwrap())
    } else if kind.is_symlink() {
        Content::Link(fs::read_link(&at).unwrap())
    } else {
        Content::Other
    };
    let entry = Entry {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        mtime: (!kind.is_dir()).then(|| meta.mtime()),
        content,
        first: inodes.entry(meta.ino()).or_insert_with(|| path.to_owned()).clone(),
    };
    // The root itself is made by whoever unpacks.
    if !path.as_os_str().is_empty() {
        found.insert(path.to_owned(), entry);
    }
    if kind.is_dir() {
        let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.iter().for_each(|name| add(root, &path.join(name), inodes, found));
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(bytes) => write!(formatter, "{} bytes: {:?}", bytes.len(), &bytes[..bytes.len().min(40)]),
            Self::Link(target) => write!(formatter, "-> {target:?}"),
            Self::Other => write!(formatter, "-"),
        }
    }
}
