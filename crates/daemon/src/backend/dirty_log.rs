//! The log of guest memory that the device has written, for a front end that migrates its guest.
//!
//! The front end provides shared memory with one bit for each page (SET_LOG_BASE) and says when to set bits
//! (VHOST_F_LOG_ALL). The vhost-user-backend crate hands the memory to the bitmap of each region, [`RegionLog`];
//! [`DirtyLog`] knows whether to log and marks guest addresses. Nothing is marked by vm-memory itself: slices of guest
//! memory carry no bitmap, so that a request costs nothing while the log is off.
//!
//! Order: what is logged is written before its bit is set, since the front end clears the bit and then reads the page.
//! The switch is read under the ring's mutex after a request's data was written. A front end that switches the log on
//! then sends the address of each ring, which takes that mutex too, so every later write is marked.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use vhost_user_backend::bitmap::{AtomicBitmapMmap, BitmapReplace, MemRegionBitmap, MmapLogReg};
use vm_memory::{
    Address, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap,
    bitmap::{Bitmap, WithBitmapSlice},
    mmap::NewBitmap,
};

use super::GuestRam;

/// Bytes of guest memory for each bit (VHOST_LOG_PAGE).
const PAGE: u64 = 4096;
/// Pages for each byte of the log.
const PAGES_PER_BYTE: u64 = 8;

/// Whether to log.
#[derive(Debug, Default)]
pub(super) struct DirtyLog {
    is_on: AtomicBool,
    /// The front end's latest log, for regions that come later. Protected by its own lock, within which no other is
    /// taken but those of regions.
    latest: Mutex<Option<Arc<MmapLogReg>>>,
}

impl DirtyLog {
    /// Returns whether written memory must be marked.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Begins or ends marking. At the end, the front end's shared memory is released.
    pub(super) fn switch(&self, is_on: bool, memory: &GuestRam) {
        self.is_on.store(is_on, Ordering::Release);
        if !is_on {
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = None;
            memory.iter().for_each(|region| log_of(region).store(None));
        }
    }

    /// Gives regions of `new` that have no log the latest one, which regions of `old` have.
    ///
    /// # Errors
    /// If the log is too short for one of them.
    pub(super) fn carry_over(&self, old: &GuestRam, new: &GuestRam) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = old.iter().find_map(|region| log_of(region).load()) {
            *latest = Some(log);
        }
        let Some(log) = &*latest else { return Ok(()) };
        for region in new.iter().filter(|region| log_of(region).load().is_none()) {
            log_of(region).replace(CheckedLog::new(region, log.clone())?);
        }
        Ok(())
    }
}

/// Marks `len` bytes from `addr` on, as far as they are in `memory`.
pub(super) fn mark(memory: &GuestRam, addr: GuestAddress, len: u64) {
    let (mut addr, mut left) = (addr, len);
    while left > 0 {
        let Some(region) = memory.find_region(addr) else { return };
        let len = left.min(region.last_addr().unchecked_offset_from(addr) + 1);
        log_of(region).mark(addr, len);
        left -= len;
        match addr.checked_add(len) {
            Some(next) => addr = next,
            None => return,
        }
    }
}

fn log_of(region: &GuestRegionMmap<RegionLog>) -> &RegionLog {
    // The mapping's own method: that of the region returns a slice of the bitmap.
    (**region).bitmap()
}

/// The log of one region of guest memory, if the front end has provided one. Shared by copies of the region.
#[derive(Debug, Clone, Default)]
pub(super) struct RegionLog(Arc<RwLock<Option<Arc<MmapLogReg>>>>);

/// A log that is long enough for its region.
pub(super) struct CheckedLog(Arc<MmapLogReg>);

impl RegionLog {
    fn load(&self) -> Option<Arc<MmapLogReg>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, log: Option<Arc<MmapLogReg>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    /// Sets the bits of `len` bytes, at least one, that are in this region.
    fn mark(&self, addr: GuestAddress, len: u64) {
        let log = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &*log else { return };
        let (first, last) = (addr.raw_value() / PAGE, (addr.raw_value() + (len - 1)) / PAGE);
        for byte in first / PAGES_PER_BYTE..=last / PAGES_PER_BYTE {
            let base = byte * PAGES_PER_BYTE;
            let from = first.max(base) - base;
            let to = last.min(base + PAGES_PER_BYTE - 1) - base;
            let bits = (u8::MAX << from) & (u8::MAX >> (PAGES_PER_BYTE - 1 - to));
            log[byte as usize].fetch_or(bits, Ordering::Release);
        }
    }
}

impl MemRegionBitmap for CheckedLog {
    fn new<R: GuestMemoryRegion>(region: &R, log: Arc<MmapLogReg>) -> io::Result<Self> {
        // The log does not tell its length; the crate's own bitmap checks it.
        AtomicBitmapMmap::new(region, log.clone())?;
        Ok(Self(log))
    }
}

impl BitmapReplace for RegionLog {
    type InnerBitmap = CheckedLog;

    fn replace(&self, log: CheckedLog) {
        self.store(Some(log.0));
    }
}

impl NewBitmap for RegionLog {
    fn with_len(_: usize) -> Self {
        Self::default()
    }
}

/// What vm-memory writes is not marked here: see the module's description.
impl Bitmap for RegionLog {
    fn mark_dirty(&self, _: usize, _: usize) {}

    fn dirty_at(&self, _: usize) -> bool {
        false
    }

    fn slice_at(&self, _: usize) {}
}

impl WithBitmapSlice<'_> for RegionLog {
    type S = ();
}
