//! Unpacked images, each in a directory named by its digest.
//!
//! An image is unpacked beside its final name, under a lock, and renamed when it is complete. What a run that was
//! killed has left is removed by the next one. [`Unpacked`] holds the lock shared, so that nobody removes what a guest
//! uses.

use std::{
    cell::Cell,
    fs::{self, File, Permissions},
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use sha2::{Digest as _, Sha256};
use tar::Archive;

use crate::{
    Config, Error, Result, Watch,
    blobs::{Blob, Blobs, plain_name},
    compression::{Compression, decompressed},
    image::{DOCKER_FILE, INDEX_FILE, Image, LAYOUT_FILE, hex},
    unpack::Unpacker,
};

/// In an image's directory: the root, and what the image says about its programs.
const ROOT: &str = "root";
const CONFIG: &str = "config.json";
/// Suffixes of the files beside it.
const PARTIAL: &str = "partial";
const LOCK: &str = "lock";
/// Images of an ordinary user, whose files all belong to that user.
const SQUASHED: &str = "-squashed";

/// The directory of unpacked images.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// An unpacked image. It is not removed while this exists.
#[derive(Debug)]
pub struct Unpacked {
    /// The directory with the image's files.
    pub root: PathBuf,
    /// What the image says about its programs.
    pub config: Config,
    /// Device nodes that were left out, if it was unpacked now.
    pub devices: u64,
    _lock: File,
}

/// What is in a file or directory.
enum Source {
    Image(Blobs),
    /// A tar of a root, perhaps compressed.
    Root(File),
}

impl Store {
    /// Returns the store in `dir`, which is made when it is first used.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the image at `path`, which is unpacked unless it already was. Of several, `name` chooses one. Blocks.
    ///
    /// # Errors
    /// Returns an error if it is no image, if it is broken or hostile, if there is no space, and if `watch` stops it.
    /// Nothing is left of it then.
    pub fn open(&self, path: &Path, name: Option<&str>, watch: &dyn Watch) -> Result<Unpacked> {
        fs::create_dir_all(&self.dir)
            // Programs with set-user-id bits are in it.
            .and_then(|()| fs::set_permissions(&self.dir, Permissions::from_mode(0o700)))
            .map_err(Error::io(format!("cannot use {:?}", self.dir)))?;
        self.remove_abandoned();
        let known = self.dir.join(format!("{}.known", identity(path, name)?));
        if let Ok(id) = fs::read_to_string(&known)
            && let Some(unpacked) = self.unpacked(&id)?
        {
            return Ok(unpacked);
        }
        let failed = |error: Error| match error {
            Error::Invalid(why) => Error::Invalid(format!("{}: {why}", path.display())),
            error => error,
        };
        let unpacked = self.find(path, name, watch).map_err(failed)?;
        // It saves reading the image next time.
        let id = unpacked.root.parent().and_then(Path::file_name).unwrap_or_default();
        let _ = fs::write(known, id.as_encoded_bytes());
        Ok(unpacked)
    }

    fn find(&self, path: &Path, name: Option<&str>, watch: &dyn Watch) -> Result<Unpacked> {
        let owners = if geteuid().is_root() { "" } else { SQUASHED };
        match self.source(path)? {
            Source::Image(blobs) => {
                let image = Image::find(&blobs, name)?;
                self.get(
                    &format!("{}{owners}", image.id),
                    |unpacker| {
                        let layers: Vec<_> =
                            image.layers.iter().map(|layer| blobs.open(&layer.file)).collect::<Result<_>>()?;
                        let len_bytes = layers.iter().map(Blob::len_bytes).sum();
                        unpacker.check_space(len_bytes)?;
                        watch.begins(len_bytes);
                        let done = Cell::new(0);
                        for (blob, layer) in layers.into_iter().zip(&image.layers) {
                            let digest = add(unpacker, blob, &done, watch)?;
                            if digest != layer.digest {
                                return Err(Error::invalid(format!(
                                    "the image is damaged: the layer {} has another digest",
                                    layer.file
                                )));
                            }
                        }
                        Ok(image.config.clone())
                    },
                    watch,
                )
            }
            Source::Root(_) if name.is_some() => {
                Err(Error::invalid("it is a tar of a root, in which image=NAME chooses nothing"))
            }
            Source::Root(file) => {
                let id = digest(&file, watch)?;
                self.get(
                    &format!("{id}{owners}"),
                    |unpacker| {
                        let blob = Blob::whole(file.try_clone()?)?;
                        unpacker.check_space(blob.len_bytes())?;
                        watch.begins(blob.len_bytes());
                        add(unpacker, blob, &Cell::new(0), watch)?;
                        Ok(Config::default())
                    },
                    watch,
                )
            }
        }
    }

    /// Finds out what is at `path`.
    fn source(&self, path: &Path) -> Result<Source> {
        if path.is_dir() {
            return Ok(Source::Image(Blobs::Directory(path.to_owned())));
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
        let first = rewound().and_then(decompressed).map_err(Error::io(reading()))?;
        if !is_image(first)? {
            return rewound().map(Source::Root).map_err(Error::io(reading()));
        }
        if compression == Compression::None {
            return Ok(Source::Image(Blobs::of_archive(file)?));
        }
        // Its files are found by their places.
        let mut plain = tempfile::tempfile_in(&self.dir).map_err(Error::io(format!("cannot use {:?}", self.dir)))?;
        rewound()
            .and_then(decompressed)
            .and_then(|mut from| io::copy(&mut from, &mut plain))
            .map_err(Error::io(format!("cannot decompress {path:?} into {:?}", self.dir)))?;
        Ok(Source::Image(Blobs::of_archive(plain)?))
    }

    /// Returns the image with this id, which `fill` unpacks if it is not there.
    fn get(
        &self,
        id: &str,
        fill: impl FnOnce(&mut Unpacker<'_>) -> Result<Config>,
        watch: &dyn Watch,
    ) -> Result<Unpacked> {
        // A guest that uses it holds the lock.
        if let Some(unpacked) = self.unpacked(id)? {
            return Ok(unpacked);
        }
        let lock = self.lock(id)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(Error::io(format!("cannot lock the image {id}")))?;
        let mut devices = 0;
        if !self.dir.join(id).is_dir() {
            let partial = self.dir.join(format!("{id}.{PARTIAL}"));
            let _ = fs::remove_dir_all(&partial);
            let filled = self.fill(&partial, fill, watch);
            if filled.is_err() {
                let _ = fs::remove_dir_all(&partial);
            }
            devices = filled?;
            fs::rename(&partial, self.dir.join(id)).map_err(Error::io(format!("cannot rename {partial:?}")))?;
        }
        drop(lock);
        let unpacked = self.unpacked(id)?;
        let unpacked = unpacked.ok_or_else(|| Error::invalid(format!("the image {id} was removed meanwhile")))?;
        Ok(Unpacked { devices, ..unpacked })
    }

    fn fill(
        &self,
        partial: &Path,
        fill: impl FnOnce(&mut Unpacker<'_>) -> Result<Config>,
        watch: &dyn Watch,
    ) -> Result<u64> {
        let root = partial.join(ROOT);
        fs::create_dir_all(&root).map_err(Error::io(format!("cannot create {root:?}")))?;
        let is_cancelled = || watch.is_cancelled();
        let mut unpacker = Unpacker::new(&root, &is_cancelled)?;
        let config = fill(&mut unpacker)?;
        let json = serde_json::to_vec(&config).map_err(|error| Error::io("cannot write the configuration")(error))?;
        fs::write(partial.join(CONFIG), json).map_err(Error::io(format!("cannot write to {partial:?}")))?;
        Ok(unpacker.devices)
    }

    /// Returns the image with this id, if it is there.
    fn unpacked(&self, id: &str) -> Result<Option<Unpacked>> {
        let dir = self.dir.join(id);
        if !dir.is_dir() {
            return Ok(None);
        }
        let lock = self.lock(id)?;
        flock(&lock, FlockOperation::LockShared).map_err(Error::io(format!("cannot lock the image {id}")))?;
        let Ok(json) = fs::read(dir.join(CONFIG)) else { return Ok(None) };
        let config =
            serde_json::from_slice(&json).map_err(|error| Error::io("cannot read the configuration")(error))?;
        Ok(Some(Unpacked { root: dir.join(ROOT), config, devices: 0, _lock: lock }))
    }

    fn lock(&self, id: &str) -> Result<File> {
        let path = self.dir.join(format!("{id}.{LOCK}"));
        let options = fs::OpenOptions::new().create(true).append(true).open(&path);
        options.map_err(Error::io(format!("cannot open {path:?}")))
    }

    /// Removes what runs that were killed have left.
    fn remove_abandoned(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(&format!(".{PARTIAL}"))) else { continue };
            if let Ok(lock) = self.lock(id)
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Adds a layer, and returns the digest of its decompressed tar.
fn add(unpacker: &mut Unpacker<'_>, blob: Blob, done: &Cell<u64>, watch: &dyn Watch) -> Result<String> {
    let broken = |error: io::Error| Error::invalid(format!("the archive is broken: {error}"));
    let counted = Observed {
        from: blob,
        observe: |bytes: &[u8]| {
            done.set(done.get() + bytes.len() as u64);
            watch.advances(done.get());
        },
    };
    let mut hash = Sha256::new();
    let mut plain =
        Observed { from: decompressed(counted).map_err(broken)?, observe: |bytes: &[u8]| hash.update(bytes) };
    unpacker.layer(&mut plain)?;
    // What follows the last entry counts for the digest.
    let mut rest = vec![0; 64 << 10];
    while plain.read(&mut rest).map_err(broken)? > 0 {
        if watch.is_cancelled() {
            return Err(Error::Cancelled);
        }
    }
    drop(plain);
    Ok(hex(&hash.finalize()))
}

/// Tells what is read.
struct Observed<R, F> {
    from: R,
    observe: F,
}

impl<R: Read, F: FnMut(&[u8])> Read for Observed<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buffer)?;
        (self.observe)(&buffer[..len]);
        Ok(len)
    }
}

/// Returns whether a tar has an image, with its layers as files in it, rather than a root.
fn is_image(from: impl Read) -> Result<bool> {
    let broken = |error: io::Error| Error::invalid(format!("the archive is broken: {error}"));
    let mut archive = Archive::new(BufReader::new(from));
    for entry in archive.entries().map_err(broken)?.raw(true) {
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
fn digest(file: &File, watch: &dyn Watch) -> Result<String> {
    let reading = "cannot read the archive";
    let mut blob = Blob::whole(file.try_clone().map_err(Error::io(reading))?).map_err(Error::io(reading))?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        if watch.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match blob.read(&mut chunk).map_err(Error::io(reading))? {
            0 => return Ok(hex(&hash.finalize())),
            len => hash.update(&chunk[..len]),
        }
    }
}

/// Returns a name for what is at `path` now. It is another one once somebody has written there.
fn identity(path: &Path, name: Option<&str>) -> Result<String> {
    // An OCI layout is described by its index.
    let file = if path.is_dir() { path.join(INDEX_FILE) } else { path.to_owned() };
    let found = fs::metadata(&file).map_err(Error::io(format!("cannot examine {file:?}")))?;
    let mut hash = Sha256::new();
    for number in [found.dev(), found.ino(), found.len()] {
        hash.update(number.to_le_bytes());
    }
    for number in [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec(), geteuid().as_raw().into()] {
        hash.update(number.to_le_bytes());
    }
    hash.update(name.unwrap_or_default());
    Ok(hex(&hash.finalize()[..16]))
}
