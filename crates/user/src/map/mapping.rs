//! [`Mapping`]: a mapping of a file, from [`MapFile::map`] until it is dropped.

use std::{ops::Range, ptr::NonNull, sync::Arc};

use transom_guest::{
    Errno,
    dax::{
        RANGE_LEN,
        backing::FileBacking,
        entry::Order,
        fault::{Fault, FaultOutcome, Intent, View},
        mapped::Mapped,
    },
    fs::File,
    session::Caller,
    volume::OpenFile,
};

use super::{
    area::Area,
    service::{self, Faults},
    view::Pages,
};
use crate::platform::{PAGE_LEN, Process};

/// The accesses that a mapping allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// Who sees the stores to a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Everyone, at once.
    Shared,
    /// Everyone, and stores are durable after [`Mapping::flush`], without a request, like Linux's MAP_SYNC. Only for
    /// files on the host's persistent memory.
    SharedSync,
    /// No one else: a page is copied before the first store to it. Until then, the page shows the stores of others.
    Private,
}

/// Files that can be mapped.
pub trait MapFile {
    /// Maps `range` of the file, in bytes.
    ///
    /// The range may end past the end of the file; that part is not accessible until the file has grown. Sends at most
    /// one request; pages are fetched when they are touched. The mapping keeps the file open.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if the range is empty or does not begin at a multiple of 4096, EACCES if the file is not open for
    /// reading, or not for writing if stores are shared, ENODEV if the file is not mapped through a window, EOPNOTSUPP
    /// for [`Sharing::SharedSync`] on other storage, and ENOMEM if no addresses are left.
    fn map(&self, range: Range<u64>, protection: Protection, sharing: Sharing) -> Result<Mapping, Errno>;
}

impl MapFile for File<Process> {
    fn map(&self, range: Range<u64>, protection: Protection, sharing: Sharing) -> Result<Mapping, Errno> {
        Mapping::with_order(Arc::clone(self.as_open_file()), range, protection, sharing, Order::Huge)
    }
}

/// A part of a file at addresses of this process. Dropping it removes the mapping.
pub struct Mapping {
    state: Arc<FaultState>,
    /// Start of the mapping in the area, in bytes.
    offset: usize,
    len: usize,
}

/// The state needed to serve faults.
struct FaultState {
    pages: Arc<Pages>,
    mapped: Arc<Mapped<Process>>,
    open: Arc<OpenFile<Process>>,
    protection: Protection,
    sharing: Sharing,
    order: Order,
}

impl Mapping {
    /// Maps as [`MapFile::map`] does, with page-table entries of at most `order`, for comparisons.
    pub fn with_order(
        open: Arc<OpenFile<Process>>,
        range: Range<u64>,
        protection: Protection,
        sharing: Sharing,
        order: Order,
    ) -> Result<Self, Errno> {
        if range.is_empty() || !range.start.is_multiple_of(PAGE_LEN) || range.end > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let is_stored = protection == Protection::ReadWrite && sharing != Sharing::Private;
        if !open.is_readable() || is_stored && !open.is_writable() {
            return Err(Errno::ACCESS);
        }
        let mapped = open.inode().ranges().ok_or(Errno::NODEV)?.mapped();
        if sharing == Sharing::SharedSync && !open.is_on_persistent_memory(&Caller::default())? {
            return Err(Errno::OPNOTSUPP);
        }
        let first = range.start / RANGE_LEN * RANGE_LEN;
        let no_addresses = |_| Errno::NOMEM;
        let len = usize::try_from(range.end - first).map_err(|_| Errno::NOMEM)?;
        let area = Area::new(len).map_err(no_addresses)?;
        let addresses = area.addresses();
        let pages = Arc::new(Pages::new(area, first / PAGE_LEN));
        mapped.attach(Arc::clone(&pages) as Arc<dyn View>);
        let state = Arc::new(FaultState { pages, mapped, open, protection, sharing, order });
        // Created first, so that dropping it on an error detaches the mapping.
        let mapping = Self {
            state: Arc::clone(&state),
            offset: (range.start - first) as usize,
            len: (range.end - range.start) as usize,
        };
        service::add(addresses, state).map_err(no_addresses)?;
        Ok(mapping)
    }

    /// Returns the start of the mapping. A Rust reference into it is sound only while no one stores there and the file
    /// does not shrink.
    pub fn as_ptr(&self) -> NonNull<u8> {
        let start = self.state.pages.area().start().as_ptr().wrapping_add(self.offset);
        NonNull::new(start).expect("an area does not wrap around")
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the accesses that the mapping allows.
    pub fn protection(&self) -> Protection {
        self.state.protection
    }

    /// Who sees what is stored in it.
    pub(super) fn sharing(&self) -> Sharing {
        self.state.sharing
    }

    /// Makes what was stored to `range`, in bytes of the mapping, durable, and what is needed to find it.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if the range lies outside the mapping, and the errors of FSYNC.
    pub fn sync(&self, range: Range<usize>) -> Result<(), Errno> {
        self.check(&range)?;
        if self.state.sharing == Sharing::Private {
            return Ok(());
        }
        let start = self.state.pages.area().addresses().start + self.offset;
        let pages = self.state.pages.page_at(start + range.start)..self.state.pages.page_at(start + range.end) + 1;
        // The host's kernel knows which pages are dirty, and writes them.
        self.state.mapped.write_back(pages, |_| Ok(()))?;
        self.state.open.fsync(&Caller::default(), true)
    }

    /// Returns EINVAL if the range lies outside the mapping.
    pub(super) fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        if range.start <= range.end && range.end <= self.len { Ok(()) } else { Err(Errno::INVAL) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        service::remove(self.state.pages.area().addresses().start);
        self.state.mapped.detach(&(Arc::clone(&self.state.pages) as Arc<dyn View>));
    }
}

impl FaultState {
    fn intent(&self, is_write: bool) -> Option<Intent> {
        match (self.protection, self.sharing, is_write) {
            (Protection::Read, _, true) => None,
            (Protection::Read, _, false) | (_, Sharing::Private | Sharing::SharedSync, false) => Some(Intent::Load),
            // A writable mapping is probably stored to, and an extra dirty mark costs nothing here.
            (_, Sharing::Shared, _) => Some(Intent::Store),
            (_, Sharing::SharedSync, true) => Some(Intent::StoreSync),
            (_, Sharing::Private, true) => Some(Intent::Copy),
        }
    }
}

impl Faults for FaultState {
    fn fault(&self, address: usize, is_write: bool) -> bool {
        let page = self.pages.page_at(address);
        if self.pages.allows(page, is_write) {
            return true;
        }
        let Some(intent) = self.intent(is_write) else { return false };
        let backing = FileBacking::new(self.open.inode());
        let fault = Fault { page, order: self.order, intent };
        let sync = |_| self.open.fsync(&Caller::default(), true);
        let outcome = self.mapped.fault_through(&backing, &*self.pages, fault, sync);
        if outcome != FaultOutcome::Installed {
            tracing::debug!(page, ?intent, ?outcome, "access to a mapped file failed");
        }
        outcome == FaultOutcome::Installed
    }
}
