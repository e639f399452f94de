//! Whether there is room: asked before something is written, and again after every few mebibytes.

use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, statvfs};

use crate::{Error, Result};

/// What is left free on the file system of the cache.
const RESERVE_BYTES: u64 = 64 << 20;
const RESERVE_FILES: u64 = 1024;
/// What may be written without another look.
const STEP_BYTES: u64 = 16 << 20;
const STEP_FILES: u64 = 1024;
/// What a file takes is a multiple of this on most file systems, and a directory takes at least as much.
const BLOCK_BYTES: u64 = 4096;

/// The free space of a directory's file system.
#[derive(Debug)]
pub(crate) struct Space {
    /// The cache, which the errors name.
    dir: PathBuf,
    /// What may still be written without a look.
    left_bytes: u64,
    left_files: u64,
}

impl Space {
    pub(crate) fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), left_bytes: 0, left_files: 0 }
    }

    /// Claims room for `files` new files and directories with `len_bytes` of content together.
    ///
    /// # Errors
    /// Returns an error if there is not enough.
    pub(crate) fn take(&mut self, len_bytes: u64, files: u64) -> Result<()> {
        let bytes = len_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        let bytes = bytes.saturating_add(files.saturating_mul(BLOCK_BYTES));
        if bytes > self.left_bytes || files > self.left_files {
            let (spare_bytes, spare_files) = self.check(bytes, files)?;
            self.left_bytes = bytes.max(STEP_BYTES.min(spare_bytes));
            self.left_files = files.max(STEP_FILES.min(spare_files));
        }
        self.left_bytes -= bytes;
        self.left_files -= files;
        Ok(())
    }

    /// Checks that there is room now, without claiming it; returns the bytes and files for which there is.
    pub(crate) fn check(&self, needed_bytes: u64, needed_files: u64) -> Result<(u64, u64)> {
        let found = statvfs(&self.dir).map_err(Error::io(format!("cannot examine {:?}", self.dir)))?;
        let (free_bytes, free_files) = free(&found);
        let dir = || self.dir.clone();
        if needed_bytes.saturating_add(RESERVE_BYTES) > free_bytes {
            return Err(Error::NoSpace { needed_bytes, reserve_bytes: RESERVE_BYTES, free_bytes, dir: dir() });
        }
        match free_files {
            Some(free_files) if needed_files.saturating_add(RESERVE_FILES) > free_files => {
                Err(Error::NoFiles { needed_files, reserve_files: RESERVE_FILES, free_files, dir: dir() })
            }
            _ => Ok((free_bytes - RESERVE_BYTES, free_files.map_or(u64::MAX, |free| free - RESERVE_FILES))),
        }
    }
}

/// Returns the free bytes, and the free inodes of a file system that has a number of them.
fn free(found: &StatVfs) -> (u64, Option<u64>) {
    (found.f_bavail.saturating_mul(found.f_frsize), (found.f_files > 0).then_some(found.f_favail))
}
