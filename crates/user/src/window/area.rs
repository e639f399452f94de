//! The memory of a window, and the list of the files mapped into it.
//!
//! [`Area`] decides what may be mapped where; [`reservation`](super::reservation) has the memory. A file on DAX storage
//! is kept open while it is mapped: to make stores durable without requests, it is mapped again with MAP_SYNC.
//!
//! Lock: `mappings`, held for one system call that changes the memory map.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use transom_guest::{
    Errno,
    dax::WindowMemory,
    memory::{IoSlice, IoSliceMut},
    session::PAGE_LEN,
};

use super::{ALIGNMENT, persistent::PersistentFiles, reservation::Reservation};

/// A window's memory, in which only the daemon's files are mapped.
#[derive(Debug)]
pub struct Area {
    memory: Reservation,
    /// By offset, in bytes.
    mappings: Mutex<BTreeMap<u64, Mapping>>,
    mappings_max: usize,
    files: PersistentFiles,
    is_map_sync_off: AtomicBool,
    is_gone: AtomicBool,
}

/// One mapping made for the daemon.
#[derive(Debug)]
struct Mapping {
    len: u64,
    sync: MapSync,
}

/// Whether stores wait for the file's metadata (MAP_SYNC).
#[derive(Debug)]
enum MapSync {
    Never,
    /// May be enabled, by mapping this file from this offset again.
    Possible(Arc<OwnedFd>, u64),
    Always,
}

impl Area {
    /// Reserves `len` bytes, a multiple of 2 MiB, in which nothing is mapped yet.
    ///
    /// # Errors
    ///
    /// Returns the errors of mmap(2).
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        let alignment = ALIGNMENT as usize;
        Ok(Self {
            memory: Reservation::new(len, alignment)?,
            mappings: Mutex::default(),
            mappings_max: len / alignment,
            files: PersistentFiles::default(),
            is_map_sync_off: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Maps `len` bytes of `file` from `file_offset` at `offset`, in pages of 2 MiB if the file system has them.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if a range lies outside the window or does not consist of whole pages, EEXIST if something is
    /// mapped there, ENOSPC if there are as many mappings as the window has ranges, and the errors of mmap(2).
    pub(super) fn map(
        &self,
        offset: u64,
        len: u64,
        file: impl AsFd,
        file_offset: u64,
        is_writable: bool,
    ) -> io::Result<()> {
        self.memory.check_pages(offset, len)?;
        let is_whole = file_offset.is_multiple_of(PAGE_LEN as u64);
        if !is_whole || file_offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut mappings = self.mappings.lock();
        let before = mappings.range(..offset + len).next_back();
        if before.is_some_and(|(&at, mapped)| at + mapped.len > offset) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        if mappings.len() >= self.mappings_max {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.memory.map((offset, len), &file, file_offset, is_writable)?;
        let kept = if is_writable { self.files.keep(file) } else { None };
        let sync = kept.map_or(MapSync::Never, |file| MapSync::Possible(file, file_offset));
        mappings.insert(offset, Mapping { len, sync });
        Ok(())
    }

    /// Maps the range at `offset` again with MAP_SYNC. Returns false if its storage does not support that.
    fn map_sync(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.memory.check_pages(offset, len)?;
        let mut mappings = self.mappings.lock();
        let Some(mapping) = mappings.get_mut(&offset).filter(|mapping| mapping.len == len) else { return Ok(false) };
        let (file, file_offset) = match &mapping.sync {
            MapSync::Never => return Ok(false),
            MapSync::Always => return Ok(true),
            MapSync::Possible(file, file_offset) => (file, *file_offset),
        };
        match self.memory.map_sync((offset, len), file, file_offset) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                mapping.sync = MapSync::Never;
                return Ok(false);
            }
            mapped => mapped?,
        }
        mapping.sync = MapSync::Always;
        Ok(true)
    }

    /// Stops the use of MAP_SYNC: from now on, the first store to a page of a
    /// [`Sharing::SharedSync`](crate::map::Sharing) mapping waits for an FSYNC request, as it does in a kernel that has
    /// the window from its device.
    pub fn disable_map_sync(&self) {
        self.is_map_sync_off.store(true, Ordering::Relaxed);
    }

    /// Returns the number of mappings with MAP_SYNC.
    pub fn synchronous_mappings(&self) -> usize {
        self.mappings.lock().values().filter(|mapping| matches!(mapping.sync, MapSync::Always)).count()
    }

    /// Removes one mapping; its addresses stay reserved.
    ///
    /// # Errors
    ///
    /// Returns ENOENT if the range is not exactly one mapping.
    pub(super) fn unmap(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut mappings = self.mappings.lock();
        if mappings.get(&offset).is_none_or(|mapping| mapping.len != len) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.memory.unmap(offset, len)?;
        mappings.remove(&offset);
        Ok(())
    }

    /// Removes every mapping, as a reset of the device does.
    pub(crate) fn clear(&self) {
        let mut mappings = self.mappings.lock();
        // A mapping that cannot be removed stays listed, so that nothing is mapped over it.
        mappings.retain(|&offset, mapping| self.memory.unmap(offset, mapping.len).is_err());
    }

    /// Returns the number of mappings.
    pub fn mappings(&self) -> usize {
        self.mappings.lock().len()
    }

    /// Lets every later load and store through this value fail, because the daemon is gone.
    pub(crate) fn close(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    fn check_connected(&self) -> Result<(), Errno> {
        if self.is_gone.load(Ordering::Acquire) { Err(Errno::NOTCONN) } else { Ok(()) }
    }
}

impl WindowMemory for Area {
    fn len_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn start(&self) -> NonNull<u8> {
        self.memory.start()
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.load_into(offset, IoSliceMut::new(bytes))
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.store_from(offset, IoSlice::new(bytes))
    }

    fn load_into(&self, offset: u64, to: IoSliceMut<'_>) -> Result<(), Errno> {
        self.check_connected()?;
        if self.memory.load(offset, to) == Some(to.len()) { Ok(()) } else { Err(Errno::FAULT) }
    }

    fn store_from(&self, offset: u64, from: IoSlice<'_>) -> Result<(), Errno> {
        self.check_connected()?;
        if self.memory.store(offset, from) == Some(from.len()) { Ok(()) } else { Err(Errno::FAULT) }
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        self.check_connected()?;
        if self.memory.touch(offset) == Some(true) { Ok(()) } else { Err(Errno::FAULT) }
    }

    fn make_synchronous(&self, offset: u64, len_bytes: u64) -> bool {
        if self.is_map_sync_off.load(Ordering::Relaxed) {
            return false;
        }
        self.map_sync(offset, len_bytes).unwrap_or_else(|error| {
            tracing::debug!(%error, offset, "cannot map a range with MAP_SYNC");
            false
        })
    }
}

#[cfg(test)]
#[path = "area_test.rs"]
mod area_test;
