//! A mapping of a file, from `map` to its end.

use std::{ops::Range, ptr::NonNull, sync::Arc};

use transom_guest::{
    Errno,
    dax::{
        RANGE_LEN,
        backing::FileBacking,
        entry::{Order, PAGE_LEN},
        fault::{Fault, Intent, Outcome, View},
        mapped::Mapped,
    },
    fs::File,
    session::Caller,
    volume::OpenFile,
};

use super::{
    service::{self, Faults},
    space::Area,
    view::Pages,
};
use crate::platform::Process;

/// What may be done in a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// Who sees what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Everybody, at once.
    Shared,
    /// Everybody, and what was stored is durable after [`Mapping::flush`], without a request: MAP_SYNC of Linux. Only where the
    /// host's file lies on memory that keeps its contents.
    SharedSync,
    /// Nobody else: a page is copied before the first store to it. Until then, what others store there is seen.
    Private,
}

/// Files that can be mapped.
pub trait MapFile {
    /// Maps `range` of the file, in bytes.
    ///
    /// The range may end beyond the end of the file, where nothing can be touched until the file has grown. Sends at most one
    /// request; pages are fetched when they are touched. The mapping keeps the file open.
    ///
    /// Errors: EINVAL for an empty range, or one that does not begin at a multiple of 4096; EACCES where the file is not open for
    /// reading, or for stores that are shared not for writing; ENODEV where the file is not mapped through a window; EOPNOTSUPP for
    /// [`Sharing::SharedSync`] on other storage; ENOMEM where there are no addresses left.
    fn map(&self, range: Range<u64>, protection: Protection, sharing: Sharing) -> Result<Mapping, Errno>;
}

impl MapFile for File<Process> {
    fn map(&self, range: Range<u64>, protection: Protection, sharing: Sharing) -> Result<Mapping, Errno> {
        Mapping::with_order(Arc::clone(self.as_open_file()), range, protection, sharing, Order::Huge)
    }
}

/// A part of a file at addresses of this process, until it is dropped.
pub struct Mapping {
    of: Arc<Of>,
    /// Where it begins in the area, in bytes.
    offset: usize,
    len: usize,
}

/// What serving faults needs.
struct Of {
    pages: Arc<Pages>,
    mapped: Arc<Mapped<Process>>,
    open: Arc<OpenFile<Process>>,
    protection: Protection,
    sharing: Sharing,
    order: Order,
}

impl Mapping {
    /// As [`MapFile::map`], with entries of `order` at most: to compare them.
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
        let of = Arc::new(Of { pages, mapped, open, protection, sharing, order });
        // Dropped, and with it detached, where this fails.
        let mapping = Self {
            of: Arc::clone(&of),
            offset: (range.start - first) as usize,
            len: (range.end - range.start) as usize,
        };
        service::add(addresses, of).map_err(no_addresses)?;
        Ok(mapping)
    }

    /// Where it begins. Rust references into it are as good as the promise that nobody else stores there and the file stays as
    /// long as it is.
    pub fn as_ptr(&self) -> NonNull<u8> {
        let start = self.of.pages.area().start().as_ptr().wrapping_add(self.offset);
        NonNull::new(start).expect("an area does not wrap round")
    }

    /// In bytes.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What may be done in it.
    pub fn protection(&self) -> Protection {
        self.of.protection
    }

    /// Who sees what is stored in it.
    pub(super) fn sharing(&self) -> Sharing {
        self.of.sharing
    }

    /// Makes what was stored to `range`, in bytes of the mapping, durable, and what is needed to find it.
    ///
    /// Errors: EINVAL for a range outside, else those of fsync.
    pub fn sync(&self, range: Range<usize>) -> Result<(), Errno> {
        self.check(&range)?;
        if self.of.sharing == Sharing::Private {
            return Ok(());
        }
        let start = self.of.pages.area().addresses().start + self.offset;
        let pages = self.of.pages.page_at(start + range.start)..self.of.pages.page_at(start + range.end) + 1;
        // The host's kernel knows what was stored, and writes it.
        self.of.mapped.write_back(pages, |_| Ok(()))?;
        self.of.open.fsync(&Caller::default(), true)
    }

    /// Errors: EINVAL.
    pub(super) fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        if range.start <= range.end && range.end <= self.len { Ok(()) } else { Err(Errno::INVAL) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        service::remove(self.of.pages.area().addresses().start);
        self.of.mapped.detach(&(Arc::clone(&self.of.pages) as Arc<dyn View>));
    }
}

impl Of {
    fn intent(&self, is_write: bool) -> Option<Intent> {
        match (self.protection, self.sharing, is_write) {
            (Protection::Read, _, true) => None,
            (Protection::Read, _, false) | (_, Sharing::Private | Sharing::SharedSync, false) => Some(Intent::Load),
            // What may be stored to probably will be, and a mark too many costs nothing here.
            (_, Sharing::Shared, _) => Some(Intent::Store),
            (_, Sharing::SharedSync, true) => Some(Intent::StoreSync),
            (_, Sharing::Private, true) => Some(Intent::Copy),
        }
    }
}

impl Faults for Of {
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
        if outcome != Outcome::Installed {
            tracing::debug!(page, ?intent, ?outcome, "an access to a mapped file fails");
        }
        outcome == Outcome::Installed
    }
}
