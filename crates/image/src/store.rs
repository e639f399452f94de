//! Unpacked images, each in a directory named by its digest.
//!
//! An image is unpacked beside its final name, under a lock, and renamed when it is complete and on the disk. What a
//! run that was killed has left is removed by the next one. [`Unpacked`] holds the lock shared, so that nobody removes
//! what a guest uses.

use std::{
    cell::Cell,
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{fs::syncfs, process::geteuid};
use sha2::{Digest as _, Sha256};

use crate::{
    Config, Error, Result, Watch,
    blobs::Blob,
    cleanup::{self, KNOWN, LOCK, PARTIAL, remove_all},
    compression::decompressed,
    image::{Image, hex},
    lock::{Lock, Mode},
    source::{Identity, Source, broken, digest, is_of_skopeo},
    space::Space,
    stoppable::{Observed, Stoppable},
    unpack::Unpacker,
};

/// In an image's directory: the root, and what the image says about its programs.
const ROOT: &str = "root";
const CONFIG: &str = "config.json";
/// Images of an ordinary user, whose files all belong to that user.
const SQUASHED: &str = "-squashed";
/// What may follow the end of a tar; programs fill their last block.
const REST_LEN_MAX: u64 = 16 << 20;

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
    lock: Lock,
}

impl Drop for Unpacked {
    /// A guest may have used it for long.
    fn drop(&mut self) {
        self.lock.mark_used();
    }
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
    /// Nothing is left of it then, unless the error is [`Error::Left`].
    pub fn open(&self, path: &Path, name: Option<&str>, watch: &dyn Watch) -> Result<Unpacked> {
        fs::create_dir_all(&self.dir)
            // Programs with set-user-id bits are in it.
            .and_then(|()| fs::set_permissions(&self.dir, Permissions::from_mode(0o700)))
            .map_err(Error::io(format!("cannot use {:?}", self.dir)))?;
        cleanup::remove_abandoned(&self.dir);
        if is_of_skopeo(path) {
            return Err(Error::invalid(format!(
                "{}: `skopeo copy … dir:` has written it, which is not read: copy the image to `oci:DIR`",
                path.display()
            )));
        }
        let identity = Identity::of(path, name)?;
        let known = self.dir.join(format!("{}.{KNOWN}", identity.name()));
        if let Ok(id) = fs::read_to_string(&known)
            && let Some(unpacked) = self.unpacked(&id, watch)?
        {
            return Ok(unpacked);
        }
        let unpacked = self.find(path, name, watch).map_err(|error| match self.explained(error, watch) {
            Error::Invalid(why) => Error::Invalid(format!("{}: {why}", path.display())),
            error => error,
        })?;
        if identity.is_settled() {
            // It saves reading the image next time.
            let id = unpacked.root.parent().and_then(Path::file_name).unwrap_or_default();
            let _ = fs::write(known, id.as_encoded_bytes());
        }
        Ok(unpacked)
    }

    fn find(&self, path: &Path, name: Option<&str>, watch: &dyn Watch) -> Result<Unpacked> {
        let owners = if geteuid().is_root() { "" } else { SQUASHED };
        match Source::find(path, &self.dir, watch)? {
            Source::Image(blobs) => {
                let image = Image::find(&blobs, name)?;
                let fill = |unpacker: &mut Unpacker<'_>| {
                    let layers: Vec<_> =
                        image.layers.iter().map(|layer| blobs.open(&layer.file)).collect::<Result<_>>()?;
                    let progress = Progress::begin(layers.iter().map(Blob::len_bytes).sum(), unpacker, watch)?;
                    for (blob, layer) in layers.into_iter().zip(&image.layers) {
                        let found = progress.add(unpacker, blob)?;
                        if found != layer.digest {
                            return Err(Error::invalid(format!(
                                "the image is damaged: the layer {:?} has another digest",
                                layer.file
                            )));
                        }
                    }
                    Ok(image.config.clone())
                };
                self.get(&format!("{}{owners}", image.id), fill, watch)
            }
            Source::Root(_) if name.is_some() => {
                Err(Error::invalid("it is a tar of a root, in which image=NAME chooses nothing"))
            }
            Source::Root(file) => {
                let id = digest(&file, watch)?;
                let fill = |unpacker: &mut Unpacker<'_>| {
                    let blob = Blob::whole(file.try_clone()?)?;
                    let progress = Progress::begin(blob.len_bytes(), unpacker, watch)?;
                    // What is unpacked must be what has the digest.
                    let mut hash = Sha256::new();
                    progress.add(unpacker, Observed { from: blob, observe: |bytes: &[u8]| hash.update(bytes) })?;
                    match hex(&hash.finalize()) == id {
                        true => Ok(Config::default()),
                        false => Err(Error::invalid(
                            "it has changed while it was read: wait until it is written, and repeat",
                        )),
                    }
                };
                self.get(&format!("{id}{owners}"), fill, watch)
            }
        }
    }

    /// Returns the image with this id, which `fill` unpacks if it is not there.
    fn get(
        &self,
        id: &str,
        fill: impl FnOnce(&mut Unpacker<'_>) -> Result<Config>,
        watch: &dyn Watch,
    ) -> Result<Unpacked> {
        // A guest that uses it holds the lock.
        if let Some(unpacked) = self.unpacked(id, watch)? {
            return Ok(unpacked);
        }
        cleanup::remove_unused(&self.dir);
        let mut devices = 0;
        // Another run may unpack it, and then use it for as long as its guest lives.
        let is_there = || self.dir.join(id).is_dir();
        if let Some(lock) = Lock::take(&self.lock_of(id), Mode::Exclusive, watch, is_there)?
            && !is_there()
        {
            match self.fill(id, fill, watch) {
                Ok(found) => devices = found,
                Err(error) => {
                    lock.remove();
                    return Err(error);
                }
            }
        }
        let unpacked = self.unpacked(id, watch)?;
        let mut unpacked = unpacked.ok_or_else(|| Error::invalid(format!("the image {id} was removed meanwhile")))?;
        unpacked.devices = devices;
        Ok(unpacked)
    }

    /// Unpacks the image with this id; returns the number of device nodes that were left out.
    fn fill(&self, id: &str, fill: impl FnOnce(&mut Unpacker<'_>) -> Result<Config>, watch: &dyn Watch) -> Result<u64> {
        let partial = self.dir.join(format!("{id}.{PARTIAL}"));
        remove_all(&partial).map_err(Error::io(format!("cannot remove {partial:?}, which an earlier run has left")))?;
        let filled = self.fill_in(&partial, fill, watch).and_then(|devices| {
            let renaming = || format!("cannot rename {partial:?}");
            fs::rename(&partial, self.dir.join(id)).map_err(Error::io(renaming()))?;
            Ok(devices)
        });
        filled.map_err(|error| {
            let why = Box::new(self.explained(error, watch));
            match remove_all(&partial) {
                Ok(()) => *why,
                Err(source) => Error::Left { why, dir: partial, source },
            }
        })
    }

    fn fill_in(
        &self,
        partial: &Path,
        fill: impl FnOnce(&mut Unpacker<'_>) -> Result<Config>,
        watch: &dyn Watch,
    ) -> Result<u64> {
        let root = partial.join(ROOT);
        let made = fs::create_dir(partial)
            .and_then(|()| fs::create_dir(&root))
            // Whatever this process's umask is: programs of the image run as other users.
            .and_then(|()| fs::set_permissions(&root, Permissions::from_mode(0o755)));
        made.map_err(Error::io(format!("cannot create {root:?}")))?;
        let mut unpacker = Unpacker::new(&root, Space::of(&self.dir), watch)?;
        let config = fill(&mut unpacker)?;
        let json = serde_json::to_vec(&config).map_err(|error| Error::io("cannot write the configuration")(error))?;
        fs::write(partial.join(CONFIG), json).map_err(Error::io(format!("cannot write to {partial:?}")))?;
        // The name must not be on the disk before the content is.
        write_out(partial, watch).map_err(Error::io(format!("cannot write {partial:?} to the disk")))?;
        // The last moment at which it can be stopped.
        if watch.is_cancelled() { Err(Error::Cancelled) } else { Ok(unpacker.devices) }
    }

    /// Returns the image with this id, if it is there.
    fn unpacked(&self, id: &str, watch: &dyn Watch) -> Result<Option<Unpacked>> {
        let dir = self.dir.join(id);
        let is_missing = || !dir.is_dir();
        let Some(lock) = Lock::take(&self.lock_of(id), Mode::Shared, watch, is_missing)? else { return Ok(None) };
        lock.mark_used();
        let Ok(json) = fs::read(dir.join(CONFIG)) else { return Ok(None) };
        let config =
            serde_json::from_slice(&json).map_err(|error| Error::io("cannot read the configuration")(error))?;
        Ok(Some(Unpacked { root: dir.join(ROOT), config, devices: 0, lock }))
    }

    /// Returns what `error` is about: after a stop, every failure is a consequence of that.
    fn explained(&self, error: Error, watch: &dyn Watch) -> Error {
        match error {
            error @ Error::Left { .. } => error,
            _ if watch.is_cancelled() => Error::Cancelled,
            Error::Io { doing, source }
                if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                Error::Full { doing, dir: self.dir.clone(), source }
            }
            error => error,
        }
    }

    fn lock_of(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.{LOCK}"))
    }
}

/// Follows the unpacking of layers.
struct Progress<'a> {
    done_bytes: Cell<u64>,
    watch: &'a dyn Watch,
}

impl<'a> Progress<'a> {
    /// Begins with layers of `len_bytes` together, compressed as they are.
    fn begin(len_bytes: u64, unpacker: &Unpacker<'_>, watch: &'a dyn Watch) -> Result<Self> {
        unpacker.space().check(len_bytes, 0)?;
        watch.begins(len_bytes);
        Ok(Self { done_bytes: Cell::new(0), watch })
    }

    /// Adds a layer, and returns the digest of its decompressed tar.
    fn add(&self, unpacker: &mut Unpacker<'_>, blob: impl Read) -> Result<String> {
        let mut counted = Observed {
            from: Stoppable { from: blob, watch: self.watch },
            observe: |bytes: &[u8]| {
                self.done_bytes.set(self.done_bytes.get() + bytes.len() as u64);
                self.watch.advances(self.done_bytes.get());
            },
        };
        let mut hash = Sha256::new();
        let mut plain = Observed {
            from: decompressed(&mut counted, self.watch).map_err(broken)?,
            observe: |bytes: &[u8]| hash.update(bytes),
        };
        unpacker.layer(&mut plain)?;
        // What follows the last entry counts for the digest.
        drain(&mut plain)?;
        drop(plain);
        drain(&mut counted)?;
        Ok(hex(&hash.finalize()))
    }
}

/// Reads what follows the end of an archive.
fn drain(from: &mut impl Read) -> Result<()> {
    let len = io::copy(&mut from.take(REST_LEN_MAX + 1), &mut io::sink()).map_err(broken)?;
    if len > REST_LEN_MAX {
        return Err(Error::invalid(format!("the archive goes on for more than {REST_LEN_MAX} bytes after its end")));
    }
    Ok(())
}

/// Writes the file system of `dir` to the disk, which may take long and cannot be interrupted: a stop leaves it to its
/// thread, which has less to write once the files are removed.
fn write_out(dir: &Path, watch: &dyn Watch) -> io::Result<()> {
    let directory = File::open(dir)?;
    let writing = thread::Builder::new().spawn(move || syncfs(directory))?;
    let mut pause = Duration::from_millis(1);
    while !writing.is_finished() {
        if watch.is_cancelled() {
            return Err(io::Error::other("stopped"));
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
    Ok(writing.join().map_err(|_| io::Error::other("the thread has panicked"))??)
}
