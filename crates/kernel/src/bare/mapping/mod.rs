//! Files at addresses, through the window: `mmap` over the kernel's own page tables.
//!
//! A [`Mapping`] occupies addresses of which nothing is mapped at first. A fault there ([`serve`]) has the library find
//! the page, which a [`View`](view::Pages) enters into the page tables. Mappings are listed under `MAPPINGS`, which is
//! not held while a fault is served.

mod chosen;
mod holes;
mod parallel;
mod scenario;
mod table;
mod view;

use alloc::{sync::Arc, vec::Vec};
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use transom_guest::{
    Errno,
    dax::{
        RANGE_LEN,
        entry::Order,
        fault::{Fault, FaultOutcome, Intent, View},
        mapped::Mapped,
    },
    fs::File,
    volume::OpenFile,
};

use super::{
    copy, dirty,
    entry::Entry,
    lock::Lock,
    page,
    platform::{Bare, PAGE_LEN},
    tables, window,
};

pub(super) use chosen::run as run_chosen;
pub(super) use parallel::run_on_both;
pub(super) use scenario::run;
pub(super) use table::measure;

use holes::{Holes, Sparse};
use view::Pages;

/// Every mapping, for faults.
static MAPPINGS: Lock<Vec<Arc<State>>> = Lock::new(Vec::new());

/// Where the next mapping begins. Only the addresses of the last mapping are used again: there is room for 512 GiB.
static NEXT: AtomicUsize = AtomicUsize::new(tables::ADDRESSES.start);

/// Who sees the stores to a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Everyone, at once.
    Shared,
    /// No one else: the first store to a page copies it.
    Private,
}

/// A whole file at addresses of the kernel, from its beginning. Dropping it removes the mapping.
struct Mapping(Arc<State>);

/// What is needed to serve a fault.
struct State {
    pages: Arc<Pages>,
    mapped: Arc<Mapped<Bare>>,
    open: Arc<OpenFile<Bare>>,
    sharing: Sharing,
    order: Order,
    holes: Holes,
    /// Faults that were served.
    served: AtomicU64,
}

impl Mapping {
    /// Maps `len_bytes` of a file, with entries of at most `order`. Errors: ENODEV if the file is not in the window,
    /// ENOMEM if no addresses are left.
    fn new(file: &File<Bare>, len_bytes: usize, sharing: Sharing, order: Order) -> Result<Self, Errno> {
        Self::with_holes(file, len_bytes, sharing, order, Holes::OfTheFile)
    }

    /// As [`Self::new`], with a choice for holes.
    fn with_holes(
        file: &File<Bare>,
        len_bytes: usize,
        sharing: Sharing,
        order: Order,
        holes: Holes,
    ) -> Result<Self, Errno> {
        let open = Arc::clone(file.as_open_file());
        let mapped = open.inode().ranges().ok_or(Errno::NODEV)?.mapped();
        let len = len_bytes.next_multiple_of(RANGE_LEN as usize);
        let start = NEXT.fetch_add(len, Ordering::Relaxed);
        if start + len > tables::ADDRESSES.end {
            return Err(Errno::NOMEM);
        }
        let pages = Arc::new(Pages::new(start..start + len));
        mapped.attach(Arc::clone(&pages) as Arc<dyn View>);
        let state = Arc::new(State { pages, mapped, open, sharing, order, holes, served: AtomicU64::new(0) });
        MAPPINGS.lock().push(Arc::clone(&state));
        Ok(Self(state))
    }

    /// Copies from `offset`. Errors: EFAULT outside the mapping or the file.
    fn load(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        copy::load(self.at(offset, bytes.len())?, bytes)
    }

    /// Copies to `offset`. Errors: EFAULT outside the mapping or the file.
    fn store(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        copy::store(self.at(offset, bytes.len())?, bytes)
    }

    /// Makes stores durable, as msync(2). Returns the pages that were stored to since the last time.
    fn sync(&self) -> Result<Vec<Range<u64>>, Errno> {
        let mut stored = Vec::new();
        self.0.mapped.write_back(0..u64::MAX, |pages| {
            stored.push(pages);
            Ok(())
        })?;
        self.0.open.fsync(&Default::default(), true)?;
        Ok(stored)
    }

    /// Returns the number of faults since the last call.
    fn take_served(&self) -> u64 {
        self.0.served.swap(0, Ordering::Relaxed)
    }

    /// Returns the entry of the page tables for `offset`.
    fn entry(&self, offset: usize) -> Option<Entry> {
        self.0.pages.entry(self.0.pages.addresses().start + offset)
    }

    fn at(&self, offset: usize, len: usize) -> Result<usize, Errno> {
        let addresses = self.0.pages.addresses();
        let end = offset.checked_add(len).filter(|&end| end <= addresses.len());
        end.map(|_| addresses.start + offset).ok_or(Errno::FAULT)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPINGS.lock().retain(|state| !Arc::ptr_eq(state, &self.0));
        self.0.pages.remove();
        self.0.mapped.detach(&(Arc::clone(&self.0.pages) as Arc<dyn View>));
        let Range { start, end } = self.0.pages.addresses();
        // Fails if this is not the last mapping.
        let _ = NEXT.compare_exchange(end, start, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Serves a page fault. Returns false if no file has a page there for this access.
pub(super) fn serve(address: usize, is_store: bool) -> bool {
    if !tables::ADDRESSES.contains(&address) {
        return false;
    }
    if is_store && dirty::mark_stored(address) {
        return true;
    }
    let state = MAPPINGS.lock().iter().find(|state| state.pages.addresses().contains(&address)).cloned();
    state.is_some_and(|state| state.serve(address, is_store))
}

impl State {
    fn serve(&self, address: usize, is_store: bool) -> bool {
        let page = (address - self.pages.addresses().start) as u64 / PAGE_LEN;
        let intent = match (is_store, self.sharing) {
            (false, _) => Intent::Load,
            (true, Sharing::Shared) => Intent::Store,
            (true, Sharing::Private) => Intent::Copy,
        };
        self.served.fetch_add(1, Ordering::Relaxed);
        let backing = Sparse::new(&self.open, self.holes);
        let serve = |intent| {
            self.mapped.fault_through(&backing, &*self.pages, Fault { page, order: self.order, intent }, |_| Ok(()))
        };
        let outcome = match serve(intent) {
            // The last page of the file, of which the host has a part: a private mapping has a copy of that.
            FaultOutcome::PartialPage if self.sharing == Sharing::Private => serve(Intent::Copy),
            outcome => outcome,
        };
        // The access is repeated if the mapping was removed meanwhile: another one may be there now.
        outcome == FaultOutcome::Installed || self.pages.is_removed()
    }
}
