//! Serving a fault in a mapped file.
//!
//! A [`Backing`] locates the bytes of the file, a [`View`] is one mapping's page tables, and the tree of
//! [`entry`](super::entry) serializes faults on the same page. The caller requests a 2 MiB entry if address and file
//! offset are congruent, and a 4 KiB entry if the outcome of that is [`FaultOutcome::FallBack`].
//!
//! The range is pinned before the entry is locked: code that takes ranges back first has them to itself, then locks
//! entries.

use core::{ops::Range, ptr::NonNull};

use super::entry::{Grab, Kind, Locked, Order, PAGE_LEN, PAGES_PER_HUGE, Tree};
use crate::{Errno, Platform};

/// An access to a page that is not mapped for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The page of the file, in units of [`PAGE_LEN`].
    pub page: u64,
    /// The order that the faulting address permits.
    pub order: Order,
    /// The kind of access.
    pub intent: Intent,
}

/// The kind of access that caused a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// A load.
    Load,
    /// A store to the file.
    Store,
    /// A store to the file that must be durable, without more requests, once the processor's cache is flushed
    /// (MAP_SYNC).
    StoreSync,
    /// A store to a private copy of the page.
    Copy,
}

/// The outcome of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The access can be repeated.
    Installed,
    /// The fault must be served with a 4 KiB entry.
    FallBack,
    /// The page lies completely beyond the end of the file.
    OutOfFile,
    /// The fault failed.
    Failed(Errno),
    /// Nothing is installed: the pages have storage allocated, which must be made durable before the fault is finished
    /// with [`finish_sync`].
    NeedsSync(Unsettled),
}

/// A fault for a durable store that waits for its pages to be made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// Pages of the file.
    pub pages: Range<u64>,
    order: Order,
    /// The entry's stamp when the pages had storage allocated.
    stamp: Option<u64>,
}

/// Where the bytes of a part of a file are.
pub enum LentPage<L> {
    /// In memory, for as long as it is lent.
    Lent(L),
    /// A hole: the bytes read as zeros, and nobody else will store to them.
    Hole,
}

/// An aligned 2 MiB of a file in memory.
pub trait Lent {
    /// Returns its start address.
    fn start(&self) -> NonNull<u8>;

    /// Returns whether a store to these bytes may go to storage whose allocation is lost if the machine stops, or that
    /// is not allocated yet. If not, the layer that serves the store ensures its durability (Linux: MAP_SYNC).
    fn is_unstable(&self) -> bool;

    /// Allocates storage for each of `pages`, counted from the beginning of these 2 MiB, as a store there would;
    /// changes no byte. Errors: EFAULT if the file has no such page.
    fn allocate(&self, pages: Range<u64>) -> Result<(), Errno>;
}

/// A file as the backing of mappings.
pub trait Backing {
    /// Lent memory.
    type Lent<'a>: Lent
    where
        Self: 'a;

    /// Returns the size of the file, in bytes. Asks the server if the known size is below `wanted`.
    fn len_bytes(&self, wanted: u64) -> Result<u64, Errno>;

    /// Returns the known size of the file, in bytes. Sends nothing, because an entry is locked. It is at least what
    /// [`Self::len_bytes`] returned last, unless the file was truncated since.
    fn known_len_bytes(&self) -> u64;

    /// Lends the 2 MiB with number `index` of the file, for stores if `is_write`: a hole is then filled first. Blocks
    /// until the memory is available.
    fn lend(&self, index: u64, is_write: bool) -> Result<LentPage<Self::Lent<'_>>, Errno>;
}

/// The page tables of one mapping of a file. Pages are counted from the beginning of the file.
pub trait View: Send + Sync {
    /// Maps `pages`, all or the part within the mapping, to the memory that begins at `from`; read-only unless
    /// `is_writable`. Replaces what is installed there, except private copies.
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno>;

    /// Maps `pages` to zeros, read-only.
    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno>;

    /// Maps a private, writable copy of `page`: of the bytes at `from`, or of zeros.
    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno>;

    /// Unmaps `pages`; private copies only if `with_copies`.
    fn zap(&self, pages: Range<u64>, with_copies: bool);

    /// Makes the next store to each of `pages` fault. Pages that are not installed are left alone.
    fn write_protect(&self, pages: Range<u64>);

    /// Returns whether a part of 2 MiB may lie beyond the end of the file, because the memory itself has no pages
    /// there.
    fn allows_beyond_end(&self) -> bool;
}

/// Serves a fault of the mapping `view`.
///
/// `unmap` removes pages from every mapping of the file. Blocks while another fault has locked the entry, and while the
/// file's memory is fetched. Sends no request while it has locked the entry itself.
pub fn fault<P: Platform, B: Backing>(
    tree: &Tree<P>,
    backing: &B,
    view: &dyn View,
    unmap: &dyn Fn(Range<u64>),
    wanted: Fault,
) -> FaultOutcome {
    serve(tree, backing, view, unmap, wanted).unwrap_or_else(FaultOutcome::Failed)
}

fn serve<P: Platform, B: Backing>(
    tree: &Tree<P>,
    backing: &B,
    view: &dyn View,
    unmap: &dyn Fn(Range<u64>),
    wanted: Fault,
) -> Result<FaultOutcome, Errno> {
    let Fault { page, order, intent } = wanted;
    // Copying 2 MiB for one store would be wasteful.
    let order = if intent == Intent::Copy { Order::Small } else { order };
    let wanted = Fault { order, ..wanted };
    let is_store = matches!(intent, Intent::Store | Intent::StoreSync);
    loop {
        match fits(backing, view, order, page)? {
            Fit::Inside => {}
            Fit::Partly => return Ok(FaultOutcome::FallBack),
            Fit::Outside => return Ok(FaultOutcome::OutOfFile),
        }
        let place = backing.lend(Order::Huge.first_page(page) / PAGES_PER_HUGE, is_store)?;
        let is_unsettled = intent == Intent::StoreSync && matches!(&place, LentPage::Lent(lent) if lent.is_unstable());
        // Requested again because the file may have been truncated before its memory was lent, and because the end of
        // the 2 MiB decides how much is allocated.
        let last_page = if is_unsettled { order.pages(page).end - 1 } else { page };
        if backing.len_bytes(first_byte_of(last_page) + 1)? <= first_byte_of(page) {
            return Ok(FaultOutcome::OutOfFile);
        }
        let mut entry = match tree.grab(page, order, is_store, unmap) {
            Grab::Locked(entry) => entry,
            Grab::FallBack => return Ok(FaultOutcome::FallBack),
        };
        // Truncation removes entries after the new size is known: either the size is seen here, or the truncating
        // thread finds the entry.
        if backing.known_len_bytes() <= first_byte_of(page) {
            continue;
        }
        let LentPage::Lent(lent) = &place else { return zeros(&mut entry, view, wanted) };
        if entry.kind() == Kind::Zero {
            unmap(entry.pages());
        }
        entry.set_kind(Kind::Real);
        if is_unsettled {
            return settle(&entry, backing, lent, wanted);
        }
        install(&mut entry, view, lent, wanted)?;
        return Ok(FaultOutcome::Installed);
    }
}

fn first_byte_of(page: u64) -> u64 {
    page.saturating_mul(PAGE_LEN)
}

/// Allocates storage for the pages of a fault.
///
/// Excludes pages beyond the end of the file, whatever the view allows: if the file grew, a store there would go to
/// storage that was never made durable.
fn settle<P: Platform, B: Backing>(
    entry: &Locked<'_, P>,
    backing: &B,
    lent: &impl Lent,
    wanted: Fault,
) -> Result<FaultOutcome, Errno> {
    let order = wanted.order.min(entry.order());
    let pages = order.pages(wanted.page);
    if order == Order::Huge && backing.known_len_bytes().div_ceil(PAGE_LEN) < pages.end {
        return Ok(FaultOutcome::FallBack);
    }
    let first = pages.start % PAGES_PER_HUGE;
    match lent.allocate(first..first + (pages.end - pages.start)) {
        Ok(()) => Ok(FaultOutcome::NeedsSync(Unsettled { pages, order, stamp: entry.stamp() })),
        // The file has become shorter.
        Err(Errno::FAULT) if order == Order::Huge => Ok(FaultOutcome::FallBack),
        Err(Errno::FAULT) => Ok(FaultOutcome::OutOfFile),
        Err(error) => Err(error),
    }
}

/// Finishes a fault after its pages were made durable with the result `synced`, whose error is the fault's error.
///
/// If the entry was removed meanwhile, even if another one was created, the pages may have lost their storage: nothing
/// is installed, and the repeated access faults again.
pub fn finish_sync<P: Platform, B: Backing>(
    tree: &Tree<P>,
    backing: &B,
    view: &dyn View,
    wanted: Fault,
    unsettled: &Unsettled,
    synced: Result<(), Errno>,
) -> Result<(), Errno> {
    synced?;
    let index = wanted.page / PAGES_PER_HUGE;
    let LentPage::Lent(lent) = backing.lend(index, true)? else { return Ok(()) };
    let Some(mut entry) = tree.find(wanted.page) else { return Ok(()) };
    if entry.stamp() != unsettled.stamp || entry.kind() != Kind::Real {
        return Ok(());
    }
    install(&mut entry, view, &lent, Fault { order: unsettled.order, ..wanted })
}

/// Installs the entry's pages or, for a fault of 4 KiB, its page.
fn install<P: Platform>(
    entry: &mut Locked<'_, P>,
    view: &dyn View,
    lent: &impl Lent,
    wanted: Fault,
) -> Result<(), Errno> {
    let is_writable = matches!(wanted.intent, Intent::Store | Intent::StoreSync);
    if is_writable {
        // Marked before a store is possible: a superfluous mark only causes a useless flush.
        entry.set_dirty(true);
    }
    let pages = wanted.order.min(entry.order()).pages(wanted.page);
    let from = at(lent.start(), pages.start % PAGES_PER_HUGE * PAGE_LEN);
    match wanted.intent {
        Intent::Copy => view.install_copy(wanted.page, Some(from)),
        Intent::Load | Intent::Store | Intent::StoreSync => view.install(pages, from, is_writable),
    }
}

fn zeros<P: Platform>(entry: &mut Locked<'_, P>, view: &dyn View, wanted: Fault) -> Result<FaultOutcome, Errno> {
    if entry.kind() != Kind::Real {
        entry.set_kind(Kind::Zero);
    }
    match wanted.intent {
        Intent::Copy => view.install_copy(wanted.page, None)?,
        Intent::Load => view.install_zeros(wanted.order.min(entry.order()).pages(wanted.page))?,
        // Backings fill holes before they lend memory for stores.
        Intent::Store | Intent::StoreSync => return Err(Errno::IO),
    }
    Ok(FaultOutcome::Installed)
}

enum Fit {
    Inside,
    /// Extends beyond the end of the file.
    Partly,
    Outside,
}

fn fits<B: Backing>(backing: &B, view: &dyn View, order: Order, page: u64) -> Result<Fit, Errno> {
    let wanted = first_byte_of(page).saturating_add(1);
    let pages = backing.len_bytes(wanted)?.div_ceil(PAGE_LEN);
    Ok(if page >= pages {
        Fit::Outside
    } else if order.pages(page).end > pages && !view.allows_beyond_end() {
        Fit::Partly
    } else {
        Fit::Inside
    })
}

/// Returns the address `offset` bytes after `start`, which is within the lent memory.
fn at(start: NonNull<u8>, offset: u64) -> NonNull<u8> {
    let address = start.as_ptr().wrapping_add(offset as usize);
    NonNull::new(address).expect("memory that is lent does not end at address 0")
}
