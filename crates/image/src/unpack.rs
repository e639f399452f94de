//! A layer becomes a part of the root: files are made, and white-outs remove what earlier layers have.

use std::{
    collections::HashSet,
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    path::Path,
};

use tar::EntryType;

use crate::{
    Error, Result, Watch,
    root::Root,
    source::broken,
    space::Space,
    tarball::{self, Member},
};

/// Removes a file of an earlier layer.
const WHITE_OUT: &[u8] = b".wh.";
/// Removes what earlier layers have in the directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other marks of aufs.
const MARK: &[u8] = b".wh..wh.";

/// Entries of all layers of an image together, and files and directories that they make. Distributions have some ten
/// thousand; each takes an inode, and some bytes of memory while its layer is unpacked.
const FILES_MAX: u64 = 4 << 20;
/// Directories in each other: removing a tree takes a descriptor for each.
const DEPTH_MAX: usize = 256;
const CHUNK_LEN: usize = 256 << 10;

/// Unpacks layers into a directory.
pub(crate) struct Unpacker<'a> {
    root: Root<'a>,
    space: Space,
    /// Entries that may follow, and files and directories that may be made.
    left_entries: u64,
    left_files: u64,
    /// Hashes of the paths that this layer has.
    made: HashSet<u64>,
    hasher: RandomState,
    /// Device nodes that were left out.
    pub(crate) devices: u64,
}

impl<'a> Unpacker<'a> {
    pub(crate) fn new(path: &Path, space: Space, watch: &'a dyn Watch) -> Result<Self> {
        Ok(Self {
            root: Root::open(path, watch).map_err(Error::io(format!("cannot open {path:?}")))?,
            space,
            left_entries: FILES_MAX,
            left_files: FILES_MAX,
            made: HashSet::new(),
            hasher: RandomState::new(),
            devices: 0,
        })
    }

    /// Returns the space that is there.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Adds the layer whose decompressed tar is `from`.
    pub(crate) fn layer(&mut self, from: impl Read) -> Result<()> {
        self.made.clear();
        let mut left_entries = self.left_entries;
        tarball::for_each(from, &mut left_entries, |kind, member, content| {
            self.member(kind, member, content).map_err(|error| match error {
                Error::Io { doing, source } if doing.is_empty() => {
                    Error::io(format!("cannot unpack {:?}", String::from_utf8_lossy(&member.path)))(source)
                }
                error => error,
            })
        })?;
        self.left_entries = left_entries;
        Ok(())
    }

    fn member(&mut self, kind: EntryType, member: &Member, content: &mut dyn Read) -> Result<()> {
        let names = names(&member.path)?;
        if let Some((name, above)) = names.split_last()
            && name.starts_with(WHITE_OUT)
        {
            return self.white_out(name, above);
        }
        let is_regular = matches!(kind, EntryType::Regular | EntryType::Continuous);
        let new = self.new_paths(&names);
        self.left_files = self.left_files.checked_sub(new.len() as u64).ok_or_else(too_many)?;
        self.space.take(if is_regular { member.len_bytes } else { 0 }, new.len() as u64)?;
        match kind {
            EntryType::Regular | EntryType::Continuous => {
                self.root.file(&names, member, |file| copy(content, member.len_bytes, file))?;
            }
            EntryType::Directory => self.root.directory(&names, member)?,
            EntryType::Symlink => self.root.symbolic_link(&names, member)?,
            EntryType::Link => self.root.hard_link(&names, &self::names(&member.target)?)?,
            EntryType::Fifo => self.root.pipe(&names, member)?,
            // The guest has its own in /dev.
            EntryType::Char | EntryType::Block => {
                self.devices += 1;
                return Ok(());
            }
            other => {
                let path = String::from_utf8_lossy(&member.path);
                return Err(Error::invalid(format!("the archive's entry {path:?} has an unknown kind: {other:?}")));
            }
        }
        self.made.extend(new);
        Ok(())
    }

    /// Returns the hashes of a path and of those above it that this layer does not have yet.
    fn new_paths(&self, names: &[&[u8]]) -> Vec<u64> {
        let hashes = (1..=names.len()).map(|len| self.hasher.hash_one(&names[..len]));
        hashes.filter(|hash| !self.made.contains(hash)).collect()
    }

    fn white_out(&mut self, name: &[u8], above: &[&[u8]]) -> Result<()> {
        let Self { root, made, hasher, .. } = self;
        let stays = |names: &[&[u8]]| made.contains(&hasher.hash_one(names));
        if name == OPAQUE {
            return Ok(root.remove_below(above, &stays)?);
        }
        if name.starts_with(MARK) {
            return Ok(());
        }
        let hidden = &name[WHITE_OUT.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::invalid(format!("{:?} hides no file of the image", String::from_utf8_lossy(name))));
        }
        let path: Vec<&[u8]> = above.iter().copied().chain([hidden]).collect();
        if stays(&path) {
            return Ok(());
        }
        Ok(root.remove(&path)?)
    }
}

/// For [`Unpacker::layer`], which adds the path.
impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::Io { doing: String::new(), source }
    }
}

fn too_many() -> Error {
    Error::invalid(format!("the image has more than {FILES_MAX} files and directories"))
}

/// Splits a path of an archive into names.
fn names(path: &[u8]) -> Result<Vec<&[u8]>> {
    let names: Vec<_> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    let shown = || String::from_utf8_lossy(path).into_owned();
    if names.contains(&&b".."[..]) {
        return Err(Error::invalid(format!("the archive's entry {:?} is refused: it leads out of the image", shown())));
    }
    if names.len() > DEPTH_MAX {
        return Err(Error::invalid(format!(
            "the archive's entry {:?} is refused: it is in more than {DEPTH_MAX} directories",
            String::from_utf8_lossy(&path[..path.len().min(200)])
        )));
    }
    if path.contains(&0) {
        return Err(Error::invalid(format!("the archive's entry {:?} is refused: a name ends early", shown())));
    }
    Ok(names)
}

fn copy(content: &mut dyn Read, len_bytes: u64, file: &mut File) -> Result<()> {
    let mut chunk = vec![0; CHUNK_LEN.min(usize::try_from(len_bytes).unwrap_or(CHUNK_LEN))];
    loop {
        match content.read(&mut chunk).map_err(broken)? {
            0 => return Ok(()),
            len => file.write_all(&chunk[..len])?,
        }
    }
}

#[cfg(test)]
#[path = "unpack_test.rs"]
mod unpack_test;
