//! Locks of images: exclusive for who unpacks or removes one, shared for who uses it.
//!
//! They are held by open files, so that they end with the process that holds them. The file of a lock can be removed by
//! whoever holds it exclusively.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Error, Result, Watch};

/// Between two attempts. A lock that is waited for cannot be given up by a signal in any other way.
const PAUSE: Duration = Duration::from_millis(50);

/// What others may do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock `path`, and waits for it if another process has it. Returns `None` once `is_needless` returns
    /// true; it is called before each attempt.
    ///
    /// # Errors
    /// Returns an error if it cannot be taken, or if `watch` is cancelled.
    pub(crate) fn take(
        path: &Path,
        mode: Mode,
        watch: &dyn Watch,
        is_needless: impl Fn() -> bool,
    ) -> Result<Option<Self>> {
        let mut is_told = false;
        loop {
            if is_needless() {
                return Ok(None);
            }
            if let Some(lock) = Self::attempt(path, mode)? {
                return Ok(Some(lock));
            }
            if !std::mem::replace(&mut is_told, true) {
                watch.waits_for(path);
            }
            if watch.is_cancelled() {
                return Err(Error::Cancelled);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Takes the lock, unless another process has it.
    pub(crate) fn attempt(path: &Path, mode: Mode) -> Result<Option<Self>> {
        let failed = || Error::io::<io::Error>(format!("cannot lock {path:?}"));
        loop {
            let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed())?;
            let operation = match mode {
                Mode::Shared => FlockOperation::NonBlockingLockShared,
                Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
            };
            match flock(&file, operation) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(failed()(errno.into())),
            }
            // Its holder may have removed it, and somebody else have made another.
            let found = file.metadata().map_err(failed())?;
            if fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino())) {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// Notes that what it is for is used now.
    pub(crate) fn mark_used(&self) {
        let _ = self.file.set_modified(SystemTime::now());
    }

    /// Removes the file of a lock that is held exclusively.
    pub(crate) fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}
