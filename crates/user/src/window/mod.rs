//! The device's shared-memory region in this process, into which the daemon maps files.
//!
//! [`area`] decides what is mapped where in the memory of [`reservation`], [`serve`] answers the daemon, and
//! [`persistent`] keeps files that may be mapped with MAP_SYNC. [`files`] replaces the memory if only the daemon's
//! files are wanted. [`versions`] is the other region: the version table of a coherence group.
//!
//! Mappings last until the device is reset or the [`Area`] is dropped. After the connection ended, loads and stores
//! through the area fail with ENOTCONN, but the mappings stay in place, so that a load by address never finds other
//! memory.

mod area;
mod files;
mod late_table;
mod persistent;
mod reservation;
mod serve;
mod versions;

use std::{io, os::fd::BorrowedFd, sync::Arc};

pub use transom_wire::window::RANGE_LEN;

pub use area::Area;
pub use files::Files;
pub(crate) use serve::{RegionLens, Served};
pub use versions::VersionTable;

use late_table::LateTable;

/// Maximum length of a window in bytes, which bounds the addresses that a daemon can make this process reserve.
pub(crate) const LEN_MAX: u64 = 1 << 40;
/// Length of a range and alignment of the window: 2 MiB, so that a huge page of a file is a huge page of the window.
pub(crate) const ALIGNMENT: u64 = RANGE_LEN;

/// What the daemon's files are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowUse {
    /// They are mapped into this process.
    Memory,
    /// Only their descriptors are kept.
    Files,
}

/// The target of the daemon's map requests.
#[derive(Debug, Clone)]
pub(crate) enum Window {
    Memory(Arc<Area>),
    Files(Arc<Files>),
}

impl Window {
    /// Returns the errors of mmap(2).
    fn new(len: u64, used_for: WindowUse) -> io::Result<Self> {
        Ok(match used_for {
            WindowUse::Memory => Self::Memory(Arc::new(Area::reserve(len as usize)?)),
            WindowUse::Files => Self::Files(Arc::new(Files::new(len))),
        })
    }

    /// Removes every mapping, as a reset of the device does.
    pub(crate) fn clear(&self) {
        match self {
            Self::Memory(area) => area.clear(),
            Self::Files(files) => files.clear(),
        }
    }

    /// Records that the daemon is gone.
    pub(crate) fn close(&self) {
        match self {
            Self::Memory(area) => area.close(),
            Self::Files(files) => files.clear(),
        }
    }

    fn map(&self, at: Part, file: BorrowedFd<'_>, file_offset: u64, is_writable: bool) -> io::Result<()> {
        match self {
            Self::Memory(area) => area.map(at.offset, at.len, file, file_offset, is_writable),
            Self::Files(files) => files.map(at.offset, at.len, file),
        }
    }

    fn unmap(&self, at: Part) -> io::Result<()> {
        match self {
            Self::Memory(area) => area.unmap(at.offset, at.len),
            Self::Files(files) => files.unmap(at.offset, at.len),
        }
    }
}

/// A part of a window in bytes, as requested by the daemon.
#[derive(Debug, Clone, Copy)]
struct Part {
    offset: u64,
    len: u64,
}
