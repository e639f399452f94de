//! The journal's memory: a file without a name that is mapped by each process that writes it, one after the other.
//!
//! A store of a word is atomic: a process that is killed has done it or not, and has done all stores before it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

/// The mapped memory.
#[derive(Debug)]
pub(super) struct Area {
    region: MmapRegion,
    file: OwnedFd,
}

impl Area {
    /// Creates memory of `len_bytes` zeros, which takes up room only where it is written.
    pub(super) fn create(len_bytes: usize) -> io::Result<OwnedFd> {
        let file = memfd_create("journal", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len_bytes as u64)?;
        Ok(file)
    }

    /// Maps `file`, which [`Area::create`] has created with this length.
    pub(super) fn map(file: &OwnedFd, len_bytes: usize) -> io::Result<Self> {
        let mapped = FileOffset::new(File::from(file.try_clone()?), 0);
        let region = MmapRegion::from_file(mapped, len_bytes).map_err(io::Error::other)?;
        Ok(Self { region, file: file.try_clone()? })
    }

    /// Returns the word at `at`, which is a multiple of 8 within the memory.
    pub(super) fn word(&self, at: usize) -> u64 {
        self.region.as_volatile_slice().load(at, Ordering::Acquire).expect(WITHIN)
    }

    /// Stores the word at `at`, which is a multiple of 8 within the memory, after all that was stored before.
    pub(super) fn set_word(&self, at: usize, word: u64) {
        self.region.as_volatile_slice().store(word, at, Ordering::Release).expect(WITHIN);
    }

    /// Copies `bytes` to `at`.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.slice(at, bytes.len()).copy_from(bytes);
    }

    /// Copies `len` bytes from `at`.
    pub(super) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.slice(at, len).copy_to(&mut bytes);
        bytes
    }

    /// Returns the memory of a range to the kernel. The range reads as zeros then.
    pub(super) fn release(&self, at: usize, len: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(errno) = fallocate(self.file.as_fd(), flags, at as u64, len as u64) {
            tracing::debug!(%errno, "the journal keeps memory that it no longer needs");
        }
    }

    fn slice(&self, at: usize, len: usize) -> VolatileSlice<'_> {
        self.region.get_slice(at, len).expect(WITHIN)
    }
}

/// Why no access to the memory fails.
const WITHIN: &str = "offsets come from the layout, which lies within the memory";
