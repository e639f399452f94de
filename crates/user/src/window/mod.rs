//! The device's shared-memory region in this process: reserved, and mapped piece by piece as the daemon asks.
//!
//! [`area`] has the memory, [`serve`] answers the daemon, [`persistent`] keeps files that may be mapped with MAP_SYNC;
//! [`files`] stands for the memory where nothing is to be mapped and the daemon's files are wanted for themselves. Everything is
//! mapped for as long as the device is not reset and somebody has the [`Area`]; once the connection has ended, loads and
//! stores through it fail with ENOTCONN, and what was mapped stays where it is until then: a load by address never finds
//! another's memory.

mod area;
mod files;
mod persistent;
mod serve;

use std::{io, os::fd::BorrowedFd, sync::Arc};

pub use transom_wire::window::RANGE_LEN;

pub use area::Area;
pub use files::Files;
pub(crate) use serve::Served;

/// The longest window, in bytes: a bound for the addresses that a daemon may have reserved here.
pub(crate) const LEN_MAX: u64 = 1 << 40;
/// Ranges are 2 MiB, and so is the alignment of the window: a huge page of a file is then one of the window.
pub(crate) const ALIGNMENT: u64 = RANGE_LEN;

/// What the daemon's files are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowUse {
    /// To be read and written in this process's memory.
    Memory,
    /// For their descriptors.
    Files,
}

/// What is behind the daemon's requests to map.
#[derive(Debug, Clone)]
pub(crate) enum Window {
    Memory(Arc<Area>),
    Files(Arc<Files>),
}

impl Window {
    /// Errors: those of mmap(2).
    fn new(len: u64, used_for: WindowUse) -> io::Result<Self> {
        Ok(match used_for {
            WindowUse::Memory => Self::Memory(Arc::new(Area::reserve(len as usize)?)),
            WindowUse::Files => Self::Files(Arc::new(Files::new(len))),
        })
    }

    /// Ends every mapping, as a reset of the device does.
    pub(crate) fn clear(&self) {
        match self {
            Self::Memory(area) => area.clear(),
            Self::Files(files) => files.clear(),
        }
    }

    /// The daemon is gone.
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

/// Of a window, in bytes, as the daemon names it.
#[derive(Debug, Clone, Copy)]
struct Part {
    offset: u64,
    len: u64,
}
