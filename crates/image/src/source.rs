//! What is at a path: an image, or the tar of a root.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};
use tar::Archive;

use crate::{
    Error, Result, Watch,
    blobs::{Blob, Blobs, plain_name},
    compression::{Compression, decompressed},
    image::{DOCKER_FILE, INDEX_FILE, LAYOUT_FILE, hex},
    space::Space,
    stoppable::Stoppable,
};

/// Clocks of file systems are this coarse at most: a later change may leave the same time.
const TICK: Duration = Duration::from_secs(2);

/// What is in a file or directory.
pub(crate) enum Source {
    Image(Blobs),
    /// A tar of a root, perhaps compressed.
    Root(File),
}

impl Source {
    /// Finds out what is at `path`. A compressed archive of an image is decompressed into an unnamed file in `dir`.
    pub(crate) fn find(path: &Path, dir: &Path, watch: &dyn Watch) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self::Image(Blobs::Directory(path.to_owned())));
        }
        let reading = || format!("cannot read {path:?}");
        let file = File::open(path).map_err(Error::io(reading()))?;
        let mut head = Vec::new();
        (&file).take(512).read_to_end(&mut head).map_err(Error::io(reading()))?;
        let compression = Compression::of(&head).map_err(|name| {
            Error::invalid(format!("it is compressed with {name}, which is not read; decompress it"))
        })?;
        if compression == Compression::None && head.get(257..262) != Some(b"ustar") {
            return Err(Error::invalid(
                "it is neither a directory nor an image: a tar of a root, an OCI layout, or an archive of podman, \
                 skopeo or docker",
            ));
        }
        let rewound = || file.try_clone().and_then(|mut file| file.seek(SeekFrom::Start(0)).map(|_| file));
        let first = Stoppable { from: rewound().map_err(Error::io(reading()))?, watch };
        let is_image = match compression {
            Compression::None => names_an_image(Archive::new(BufReader::new(first)).entries_with_seek())?,
            _ => names_an_image(Archive::new(decompressed(first, watch).map_err(broken)?).entries())?,
        };
        if !is_image {
            return rewound().map(Self::Root).map_err(Error::io(reading()));
        }
        if compression == Compression::None {
            return Ok(Self::Image(Blobs::of_archive(file, watch)?));
        }
        // Its files are found by their places.
        let from = decompressed(rewound().map_err(Error::io(reading()))?, watch).map_err(broken)?;
        let len_bytes = file.metadata().map_err(Error::io(reading()))?.len();
        Ok(Self::Image(Blobs::of_archive(plain_copy(from, len_bytes, dir)?, watch)?))
    }
}

/// Returns whether `path` is a directory that `skopeo copy … dir:` has written, which is no layout.
pub(crate) fn is_of_skopeo(path: &Path) -> bool {
    let version = path.join("version");
    let mut text = [0; 19];
    version.is_file()
        && path.join(DOCKER_FILE).is_file()
        && File::open(version).and_then(|mut file| file.read_exact(&mut text)).is_ok()
        && &text == b"Directory Transport"
}

/// Returns an unnamed file in `dir` with what `from` has, which is at least `len_bytes`.
fn plain_copy(mut from: impl Read, len_bytes: u64, dir: &Path) -> Result<File> {
    let mut space = Space::of(dir);
    space.check(len_bytes, 1)?;
    let mut copy = tempfile::tempfile_in(dir).map_err(Error::io(format!("cannot use {dir:?}")))?;
    let mut chunk = vec![0; 256 << 10];
    loop {
        let len = from.read(&mut chunk).map_err(broken)?;
        if len == 0 {
            return Ok(copy);
        }
        space.take(len as u64, 0)?;
        copy.write_all(&chunk[..len]).map_err(Error::io(format!("cannot decompress the image into {dir:?}")))?;
    }
}

/// Returns whether a tar has an image, with its layers as files in it, rather than a root.
fn names_an_image<'a, R: Read + 'a>(entries: io::Result<tar::Entries<'a, R>>) -> Result<bool> {
    for entry in entries.map_err(broken)?.raw(true) {
        let name = plain_name(&entry.map_err(broken)?.path_bytes());
        let top = name.split('/').next().unwrap_or_default();
        let is_id = top.len() == 64 && top.bytes().all(|byte| byte.is_ascii_hexdigit());
        if [LAYOUT_FILE, INDEX_FILE, DOCKER_FILE].contains(&&*name) {
            return Ok(true);
        }
        // What image archives have besides.
        if !(is_id
            || top.is_empty()
            || top == "blobs"
            || top == "repositories"
            || top.ends_with(".tar")
            || top.ends_with(".json"))
        {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Returns the digest of a file.
pub(crate) fn digest(file: &File, watch: &dyn Watch) -> Result<String> {
    let reading = "cannot read the archive";
    let blob = Blob::whole(file.try_clone().map_err(Error::io(reading))?).map_err(Error::io(reading))?;
    let mut from = Stoppable { from: blob, watch };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match from.read(&mut chunk).map_err(Error::io(reading))? {
            0 => return Ok(hex(&hash.finalize())),
            len => hash.update(&chunk[..len]),
        }
    }
}

/// Which version of the file or directory at a path is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    digest: String,
    changed: SystemTime,
}

impl Identity {
    /// Returns that of what is at `path` now, together with the image's `name` and the user.
    pub(crate) fn of(path: &Path, name: Option<&str>) -> Result<Self> {
        // An OCI layout is described by its index.
        let file = if path.is_dir() { path.join(INDEX_FILE) } else { path.to_owned() };
        let found = fs::metadata(&file).map_err(Error::io(format!("cannot examine {file:?}")))?;
        let mut hash = Sha256::new();
        for number in [found.dev(), found.ino(), found.len()] {
            hash.update(number.to_le_bytes());
        }
        for number in [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec(), geteuid().as_raw().into()]
        {
            hash.update(number.to_le_bytes());
        }
        hash.update(name.unwrap_or_default());
        let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
        Ok(Self { digest: hex(&hash.finalize()[..16]), changed })
    }

    /// Returns a name for it.
    pub(crate) fn name(&self) -> &str {
        &self.digest
    }

    /// Returns whether a change from now on will show in the file's times.
    pub(crate) fn is_settled(&self) -> bool {
        SystemTime::now().duration_since(self.changed).is_ok_and(|age| age > TICK)
    }
}

pub(crate) fn broken(error: io::Error) -> Error {
    Error::invalid(format!("the archive is broken: {error}"))
}
