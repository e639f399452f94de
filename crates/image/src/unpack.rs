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
    Error, Result,
    root::Root,
    tarball::{self, Member},
};

/// Removes a file of an earlier layer.
const WHITE_OUT: &[u8] = b".wh.";
/// Removes what earlier layers have in the directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other marks of aufs.
const MARK: &[u8] = b".wh..wh.";

/// What is left free on the file system of the cache.
const RESERVE_BYTES: u64 = 64 << 20;
/// Writes without a look at what is free.
const UNCHECKED_BYTES: u64 = 16 << 20;
const CHUNK_LEN: usize = 256 << 10;

/// Unpacks layers into a directory.
pub(crate) struct Unpacker<'a> {
    root: Root,
    path: &'a Path,
    is_cancelled: &'a dyn Fn() -> bool,
    /// Bytes that may be written before the next look at what is free.
    unchecked_bytes: u64,
    /// Hashes of the paths that this layer has.
    made: HashSet<u64>,
    hasher: RandomState,
    /// Device nodes that were left out.
    pub(crate) devices: u64,
}

impl<'a> Unpacker<'a> {
    pub(crate) fn new(path: &'a Path, is_cancelled: &'a dyn Fn() -> bool) -> Result<Self> {
        let root = Root::open(path).map_err(Error::io(format!("cannot open {path:?}")))?;
        Ok(Self {
            root,
            path,
            is_cancelled,
            unchecked_bytes: 0,
            made: HashSet::new(),
            hasher: RandomState::new(),
            devices: 0,
        })
    }

    /// Adds the layer whose decompressed tar is `from`.
    pub(crate) fn layer(&mut self, from: impl Read) -> Result<()> {
        self.made.clear();
        tarball::for_each(from, |kind, member, content| {
            if (self.is_cancelled)() {
                return Err(Error::Cancelled);
            }
            self.member(kind, member, content).map_err(|error| match error {
                Error::Io { doing, source } if doing.is_empty() => {
                    Error::io(format!("cannot unpack {:?}", String::from_utf8_lossy(&member.path)))(source)
                }
                error => error,
            })
        })
    }

    fn member(&mut self, kind: EntryType, member: &Member, content: &mut dyn Read) -> Result<()> {
        let names = names(&member.path)?;
        if let Some((name, above)) = names.split_last()
            && name.starts_with(WHITE_OUT)
        {
            return self.white_out(name, above);
        }
        match kind {
            EntryType::Regular | EntryType::Continuous => self.file(&names, member, content)?,
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
        for len in 1..=names.len() {
            self.made.insert(self.hasher.hash_one(&names[..len]));
        }
        Ok(())
    }

    fn file(&mut self, names: &[&[u8]], member: &Member, content: &mut dyn Read) -> Result<()> {
        if member.len_bytes > UNCHECKED_BYTES {
            self.check_space(member.len_bytes)?;
        }
        let (is_cancelled, mut unchecked_bytes) = (self.is_cancelled, self.unchecked_bytes);
        if unchecked_bytes < member.len_bytes {
            self.check_space(UNCHECKED_BYTES)?;
            unchecked_bytes = UNCHECKED_BYTES;
        }
        self.root.file(names, member, |file| copy(content, file, is_cancelled))?;
        self.unchecked_bytes = unchecked_bytes.saturating_sub(member.len_bytes);
        Ok(())
    }

    /// Checks that there is room for `len_bytes`.
    pub(crate) fn check_space(&self, len_bytes: u64) -> Result<()> {
        let free_bytes = self.root.free_bytes().map_err(Error::io(format!("cannot examine {:?}", self.path)))?;
        let needed_bytes = len_bytes.saturating_add(RESERVE_BYTES);
        match needed_bytes <= free_bytes {
            true => Ok(()),
            false => Err(Error::NoSpace { needed_bytes, free_bytes, dir: self.path.to_owned() }),
        }
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

/// Directories in each other: removing a tree takes a descriptor for each.
const DEPTH_MAX: usize = 256;

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

fn copy(content: &mut dyn Read, file: &mut File, is_cancelled: &dyn Fn() -> bool) -> Result<()> {
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        if is_cancelled() {
            return Err(Error::Cancelled);
        }
        match content.read(&mut chunk).map_err(|error| Error::invalid(format!("the archive is broken: {error}")))? {
            0 => return Ok(()),
            len => file.write_all(&chunk[..len])?,
        }
    }
}
