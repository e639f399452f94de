//! A load's target by system calls: a directory, in which a share is mounted.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, XattrFlags, flock, fsetxattr},
    io::Errno,
};
use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use super::load::{PROGRESS, Target, name};

/// The attributes that a load sets, where the share has any.
const ATTRIBUTE: &str = "user.soak";

/// A directory.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    fn open(&self, file: usize) -> io::Result<File> {
        File::options().read(true).write(true).open(self.0.join(name(file)))
    }

    fn with_names(&self, prefix: &str) -> io::Result<()> {
        let at = |suffix: &str| self.0.join(format!("{prefix}-{suffix}"));
        // What an earlier load was about to do may be half done.
        for suffix in ["new", "renamed", "link", "symlink"] {
            remove(&at(suffix), |path| fs::remove_file(path))?;
        }
        remove(&at("dir"), |path| fs::remove_dir_all(path))?;
        let new = File::create_new(at("new"))?;
        new.write_all_at(b"new", 0)?;
        new.set_len(100)?;
        flock(new.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
        let _ = fsetxattr(&new, ATTRIBUTE, b"value", XattrFlags::empty());
        fs::rename(at("new"), at("renamed"))?;
        fs::hard_link(at("renamed"), at("link"))?;
        std::os::unix::fs::symlink("nothing", at("symlink"))?;
        fs::create_dir(at("dir"))?;
        fs::rename(at("link"), at("dir").join("inside"))?;
        for entry in fs::read_dir(&self.0)? {
            entry?;
        }
        fs::remove_file(at("renamed"))?;
        new.read_at(&mut [0; 3], 0)?;
        Ok(())
    }
}

/// Whether a change of names can fail so when a daemon dies and the mount goes on with the next one: it may have been
/// done, and is not repeated.
fn is_of_a_death(error: &io::Error) -> bool {
    let errors = [Errno::IO, Errno::NOENT, Errno::STALE, Errno::EXIST, Errno::NOTEMPTY];
    Errno::from_io_error(error).is_some_and(|errno| errors.contains(&errno))
}

/// Removes `path` if it is there.
fn remove(path: &Path, work: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    match work(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Target for Directory {
    fn read(&self, file: usize, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.open(file).and_then(|file| file.read_exact_at(bytes, at)).map_err(|error| format!("read: {error}"))
    }

    fn write(&self, file: usize, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.open(file).and_then(|file| file.write_all_at(bytes, at)).map_err(|error| format!("write: {error}"))
    }

    /// A store is synced: the front end may die before the kernel writes it back.
    fn map(&self, file: usize, at: u64, bytes: &mut [u8], is_store: bool) -> Result<(), String> {
        let file = self.open(file).map_err(|error| format!("open: {error}"))?;
        if is_store {
            // A mapping that nobody can read any more ends a program with SIGBUS. So data is stored by write(2), and
            // only read through the mapping.
            return file
                .write_all_at(bytes, at)
                .and_then(|()| file.sync_data())
                .map_err(|error| format!("write and sync: {error}"));
        }
        let offset = FileOffset::new(file, at);
        let region: MmapRegion<()> =
            MmapRegion::from_file(offset, bytes.len()).map_err(|error| format!("mmap: {error}"))?;
        region.as_volatile_slice().read_slice(bytes, 0).map_err(|error| format!("a load: {error}"))
    }

    fn sync(&self, file: usize) -> Result<(), String> {
        self.open(file).and_then(|file| file.sync_all()).map_err(|error| format!("fsync: {error}"))
    }

    fn names(&self, prefix: &str) -> Result<(), String> {
        match self.with_names(prefix) {
            Err(error) if !is_of_a_death(&error) => Err(format!("names: {error}")),
            _ => Ok(()),
        }
    }

    fn record(&self, steps: u64) -> Result<(), String> {
        fs::write(self.0.join(PROGRESS), format!("{steps:>20}")).map_err(|error| format!("progress: {error}"))
    }
}
