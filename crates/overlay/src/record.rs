//! What the directory was like when the guest saw it: the host's later changes are told apart by this.
//!
//! The record is made before each run. What the guest has changed in earlier runs keeps its old entry, because that is
//! what the guest's version began with.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use crate::{
    Error, Kind, Meta, Result, attributes,
    tree::{Node, Tree},
};

/// What is recorded of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    uid: u32,
    gid: u32,
    len_bytes: u64,
    mtime: (i64, u64),
    ino: u64,
}

impl From<&Meta> for Entry {
    fn from(meta: &Meta) -> Self {
        let Meta { kind, mode, uid, gid, len_bytes, mtime, ino, .. } = *meta;
        Self { kind, mode, uid, gid, len_bytes, mtime, ino }
    }
}

impl Entry {
    /// Returns whether `meta` is of the same file with the same content. A directory stays the same whatever is in it.
    pub(crate) fn is_of(&self, meta: &Meta) -> bool {
        match (self.kind, meta.kind) {
            (Kind::Directory, Kind::Directory) => true,
            _ => *self == Self::from(meta),
        }
    }

    /// Returns whether `meta` is of a directory with the same permissions and owner. An ordinary user's guest cannot
    /// change owners.
    pub(crate) fn has_rights_of(&self, meta: &Meta) -> bool {
        let is_owner_equal = !geteuid().is_root() || (self.uid, self.gid) == (meta.uid, meta.gid);
        (self.kind, meta.kind) == (Kind::Directory, Kind::Directory) && self.mode == meta.mode && is_owner_equal
    }
}

/// Files by their paths in the directory; the directory itself has an empty one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(BTreeMap<PathBuf, Entry>);

/// What the upper layer says about a directory of the lower one.
#[derive(Clone, Copy)]
enum Above {
    /// Nothing: the guest has changed nothing in it.
    Nothing,
    /// It has some of its entries.
    Some,
    /// It hides all.
    All,
}

impl Record {
    pub(crate) fn get(&self, path: &Path) -> Option<&Entry> {
        self.0.get(path)
    }

    /// Returns the record of `lower` as it is now, except of what `upper` has changed, which stays as in `self`; and
    /// where file systems are mounted in `lower`.
    pub(crate) fn renewed(&self, lower: &Tree, upper: &Tree) -> Result<(Self, Vec<PathBuf>)> {
        let mut entries = BTreeMap::new();
        let mut mount_points = Vec::new();
        let root = Path::new("");
        if let Some(meta) = lower.meta(root)? {
            entries.extend(self.of_directory(lower, upper, root, &meta)?.map(|entry| (root.to_owned(), entry)));
        }
        let mut left = vec![(PathBuf::new(), Above::Some)];
        while let Some((directory, above)) = left.pop() {
            // What cannot be read is not recorded, and is in conflict if it is changed.
            for name in reachable(lower.names(&directory))?.unwrap_or_default() {
                let path = directory.join(name);
                let found = lower.meta(&path);
                if found.as_ref().is_err_and(|error| error.is_of(io::ErrorKind::CrossesDevices)) {
                    // Below what the upper layer hides, the guest sees nothing of it.
                    if !matches!(above, Above::All) {
                        mount_points.push(path);
                    }
                    continue;
                }
                let Some(meta) = reachable(found)?.flatten() else { continue };
                let over = match above {
                    Above::Some => upper.node(&path)?.map_or(Ok(Above::Nothing), |node| over(&node, &meta))?,
                    inherited => inherited,
                };
                let entry = match over {
                    Above::Nothing => Some(Entry::from(&meta)),
                    _ if meta.is_directory() => self.of_directory(lower, upper, &path, &meta)?,
                    Above::Some | Above::All => self.get(&path).copied(),
                };
                if let Some(entry) = entry {
                    entries.insert(path.clone(), entry);
                }
                if meta.is_directory() {
                    left.push((path, over));
                }
            }
        }
        // What the host has removed and the guest has changed.
        let gone = self.0.iter().filter(|(path, _)| !entries.contains_key(*path)).collect::<Vec<_>>();
        for (path, entry) in gone {
            if upper.node(path)?.is_some() && reachable(lower.node(path))?.is_some_and(|node| node.is_none()) {
                entries.insert(path.clone(), *entry);
            }
        }
        Ok((Self(entries), mount_points))
    }

    /// Returns the entry of a directory of which the upper layer says something: as it is now, if both layers agree.
    fn of_directory(&self, lower: &Tree, upper: &Tree, path: &Path, meta: &Meta) -> Result<Option<Entry>> {
        let failed = || format!("cannot compare {:?}", lower.full(path));
        if let (Some(from), Some(to)) = (upper.node(path)?, lower.node(path)?)
            && from.meta.is_directory()
            && reachable(attributes::are_equal(&from, &to).map_err(Error::io(failed)))? == Some(true)
        {
            return Ok(Some(Entry::from(meta)));
        }
        Ok(self.get(path).copied())
    }

    /// Reads a record. A file that is missing is an empty one.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = || format!("cannot read {path:?}");
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io(failed)(error)),
        };
        let lines = bytes.split(|&byte| byte == 0).filter(|line| !line.is_empty());
        let entries = lines.map(parse).collect::<Option<BTreeMap<_, _>>>();
        entries.map(Self).ok_or_else(|| Error::io(failed)(io::Error::other("it is damaged")))
    }

    /// Replaces the file at `path` by this record.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let write = || {
            let unnamed = path.with_extension("new");
            let mut file = BufWriter::new(File::create(&unnamed)?);
            for (path, entry) in &self.0 {
                let Entry { kind, mode, uid, gid, len_bytes, mtime: (s, ns), ino } = entry;
                write!(file, "{} {mode} {uid} {gid} {len_bytes} {s} {ns} {ino} ", letter(*kind))?;
                file.write_all(path.as_os_str().as_bytes())?;
                file.write_all(b"\0")?;
            }
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
            std::fs::rename(&unnamed, path)
        };
        write().map_err(Error::io(|| format!("cannot write {path:?}")))
    }
}

/// Returns what `upper` says about the directory or file at its place.
fn over(upper: &Node, lower: &Meta) -> Result<Above> {
    Ok(match upper.meta.kind {
        Kind::Directory if lower.is_directory() && !attributes::is_opaque(upper) => Above::Some,
        _ => Above::All,
    })
}

/// Returns nothing for what this user may not read, and for what is on another file system.
fn reachable<T>(result: Result<T>) -> Result<Option<T>> {
    let unreachable = [io::ErrorKind::PermissionDenied, io::ErrorKind::CrossesDevices];
    match result {
        Err(error) if unreachable.into_iter().any(|kind| error.is_of(kind)) => Ok(None),
        result => result.map(Some),
    }
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => 'f',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Device => 'b',
        Kind::Whiteout => 'w',
    }
}

fn parse(line: &[u8]) -> Option<(PathBuf, Entry)> {
    let mut words = line.splitn(9, |&byte| byte == b' ');
    let kind = match words.next()? {
        b"f" => Kind::File,
        b"d" => Kind::Directory,
        b"l" => Kind::Symlink,
        b"p" => Kind::Fifo,
        b"s" => Kind::Socket,
        b"b" => Kind::Device,
        b"w" => Kind::Whiteout,
        _ => return None,
    };
    fn number<T: std::str::FromStr>(word: Option<&[u8]>) -> Option<T> {
        std::str::from_utf8(word?).ok()?.parse().ok()
    }
    let entry = Entry {
        kind,
        mode: number(words.next())?,
        uid: number(words.next())?,
        gid: number(words.next())?,
        len_bytes: number(words.next())?,
        mtime: (number(words.next())?, number(words.next())?),
        ino: number(words.next())?,
    };
    Some((OsString::from_vec(words.next()?.to_vec()).into(), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_whatever_the_names_are() {
        let folder = tempfile::tempdir().unwrap();
        let entry =
            Entry { kind: Kind::File, mode: 0o644, uid: 1, gid: 2, len_bytes: 7, mtime: (-1, 5), ino: u64::MAX };
        let names = ["plain", "with space", "line\nbreak", " leading"].map(PathBuf::from);
        let odd = PathBuf::from(OsString::from_vec(vec![0xff, b'/', 0x80]));
        let record = Record(names.into_iter().chain([odd]).map(|name| (name, entry)).collect());
        let path = folder.path().join("record");
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);
        std::fs::write(&path, "f 1 2").unwrap();
        assert!(Record::read(&path).is_err());
        assert_eq!(Record::read(&folder.path().join("none")).unwrap(), Record::default());
    }
}
