//! The files of an image: in a directory, or in a tar of such a directory.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tar::{Archive, EntryType};

use crate::{Error, Result, Watch, stoppable::Stoppable};

/// Entries of an archive; each has a header of 512 bytes, so that a longer list takes a large file.
const ENTRIES_MAX: usize = 65_536;
/// Length of a manifest or a configuration.
const JSON_LEN_MAX: u64 = 4 << 20;

/// The files of an image.
#[derive(Debug)]
pub(crate) enum Blobs {
    Directory(PathBuf),
    Archive { file: Arc<File>, index: HashMap<String, Part> },
}

/// A file in an archive.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Bytes {
        offset: u64,
        len: u64,
    },
    /// Another name of a file.
    Link(String),
}

/// A file of an image, from its beginning.
#[derive(Debug)]
pub(crate) struct Blob {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Blobs {
    /// Lists the files in the tar `file`.
    pub(crate) fn of_archive(file: File, watch: &dyn Watch) -> Result<Self> {
        let failed = |error| Error::io("cannot read the archive")(error);
        let mut index = HashMap::new();
        let mut reader = file.try_clone().map_err(failed)?;
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut archive = Archive::new(BufReader::new(Stoppable { from: reader, watch }));
        for entry in archive.entries_with_seek().map_err(failed)?.raw(true) {
            let entry = entry.map_err(failed)?;
            let name = plain_name(&entry.path_bytes());
            let part = match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    Part::Bytes { offset: entry.raw_file_position(), len: entry.size() }
                }
                // Names of links are relative to the directory of the link, or, of hard links, to the archive.
                kind @ (EntryType::Symlink | EntryType::Link) => {
                    let target = entry.link_name_bytes().unwrap_or_default();
                    let base = if kind == EntryType::Symlink { parent(&name) } else { "" };
                    Part::Link(joined(base, &plain_name(&target)))
                }
                _ => continue,
            };
            if index.len() == ENTRIES_MAX {
                return Err(Error::invalid(format!("the archive of an image has more than {ENTRIES_MAX} files")));
            }
            index.insert(name, part);
        }
        Ok(Self::Archive { file: Arc::new(file), index })
    }

    /// Opens the file `name`, a path in the image.
    pub(crate) fn open(&self, name: &str) -> Result<Blob> {
        let missing = || Error::invalid(format!("the image has no file {name:?}, which it refers to"));
        match self {
            Self::Directory(dir) => {
                let path = dir.join(name);
                // A pipe would block.
                if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                    return Err(missing());
                }
                let file = File::open(&path).map_err(Error::io(format!("cannot open {path:?}")))?;
                let end = file.metadata().map_err(Error::io(format!("cannot read {path:?}")))?.len();
                Ok(Blob { file: Arc::new(file), at: 0, end })
            }
            Self::Archive { file, index } => {
                let mut part = index.get(name);
                if let Some(Part::Link(other)) = part {
                    part = index.get(other);
                }
                let Some(Part::Bytes { offset, len }) = part else { return Err(missing()) };
                let end = offset.checked_add(*len).ok_or_else(missing)?;
                Ok(Blob { file: Arc::clone(file), at: *offset, end })
            }
        }
    }

    /// Returns whether there is a file `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(dir) => dir.join(name).is_file(),
            Self::Archive { index, .. } => index.contains_key(name),
        }
    }

    /// Reads a manifest or the like.
    pub(crate) fn json(&self, name: &str) -> Result<Vec<u8>> {
        let blob = self.open(name)?;
        let len = blob.len_bytes();
        if len > JSON_LEN_MAX {
            return Err(Error::invalid(format!(
                "{name:?} of the image has {len} bytes; at most {JSON_LEN_MAX} are read"
            )));
        }
        let mut json = Vec::new();
        { blob }.read_to_end(&mut json).map_err(Error::io(format!("cannot read {name:?} of the image")))?;
        Ok(json)
    }
}

impl Blob {
    /// Returns all of `file`.
    pub(crate) fn whole(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), at: 0, end })
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let len = self.file.read_at(&mut buffer[..len], self.at)?;
        if len == 0 && left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends too early"));
        }
        self.at += len as u64;
        Ok(len)
    }
}

/// Returns a path as text without `./` and what is around it.
pub(crate) fn plain_name(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    Path::new(&*path)
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .filter(|part| *part != ".")
        .collect::<Vec<_>>()
        .join("/")
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns `name` seen from the directory `base`; `..` leads to its parent.
fn joined(base: &str, name: &str) -> String {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
