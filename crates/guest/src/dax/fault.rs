//! Serving a fault in a mapped file.
//!
//! A [`Backing`] locates the bytes of the file, a [`View`] is one mapping's page tables, and the tree of
//! [`entry`](super::entry) serializes faults on the same page. The caller requests a 2 MiB entry if address and file
//! offset are congruent, and an entry of a page if the outcome of that is [`FaultOutcome::FallBack`].
//!
//! A page of the guest may be larger than one of the host. The host has memory for a file up to the end of its own
//! last page, and an access after that may end the machine. So the last page of a file may be a
//! [`FaultOutcome::PartialPage`].
//!
//! The range is pinned before the entry is locked: code that takes ranges back first has them to itself, then locks
//! entries.

use core::{ops::Range, ptr::NonNull};

use super::{
    RANGE_LEN,
    entry::{Grab, Kind, Locked, Order, Tree},
};
use crate::{Errno, Platform};

/// The smallest page that a host may have, in bytes: all of a host's pages are multiples of it.
pub const HOST_PAGE_LEN: u64 = 4096;

/// An access to a page that is not mapped for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The page of the file, in units of [`Platform::PAGE_SIZE`].
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
    /// The fault must be served with an entry of a page.
    FallBack,
    /// The page lies completely beyond the end of the file.
    OutOfFile,
    /// The file ends within the page, of which the host has memory for only a part, and the view does not
    /// [allow](View::allows_beyond_end) the rest. Nothing is installed. A private mapping can be served as
    /// [`Intent::Copy`]; a shared one needs READ and WRITE. Not with pages of 4 KiB.
    PartialPage,
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

    /// Allocates storage for `bytes`, whole pages of the guest counted from the beginning of these 2 MiB, as stores to
    /// all of them would; changes no byte. Errors: EFAULT if the file has no memory for a part of them.
    fn allocate(&self, bytes: Range<u64>) -> Result<(), Errno>;
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

/// The part of a page that the file has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePart {
    /// Where the page begins.
    pub start: NonNull<u8>,
    /// The number of bytes, at most those of a page.
    pub len_bytes: usize,
}

/// The page tables of one mapping of a file. Pages are those of [`Platform::PAGE_SIZE`], counted from the beginning of
/// the file.
pub trait View: Send + Sync {
    /// Maps `pages`, all or the part within the mapping, to the memory that begins at `from`; read-only unless
    /// `is_writable`. Replaces what is installed there, except private copies.
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno>;

    /// Maps `pages` to zeros, read-only.
    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno>;

    /// Maps a private, writable copy of `page`: the bytes of `from`, if any, followed by zeros.
    fn install_copy(&self, page: u64, from: Option<PagePart>) -> Result<(), Errno>;

    /// Unmaps `pages`; private copies only if `with_copies`.
    fn zap(&self, pages: Range<u64>, with_copies: bool);

    /// Makes the next store to each of `pages` fault. Pages that are not installed are left alone.
    fn write_protect(&self, pages: Range<u64>);

    /// Returns whether a part of an entry may lie beyond the end of the file, because an access to memory that has no
    /// page there is survived.
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
    let first_byte = first_byte_of::<P>(page);
    loop {
        // Nothing is lent for a page outside of the file.
        if backing.len_bytes(first_byte.saturating_add(1))? <= first_byte {
            return Ok(FaultOutcome::OutOfFile);
        }
        let place = backing.lend(page / P::PAGE_SIZE.pages_per_huge(), is_store)?;
        let is_unsettled = intent == Intent::StoreSync && matches!(&place, LentPage::Lent(lent) if lent.is_unstable());
        let beyond = match &place {
            // If the file grew, a store there would go to storage that was never made durable.
            LentPage::Lent(_) if is_unsettled => Beyond::Nothing,
            LentPage::Lent(_) if intent != Intent::Copy && view.allows_beyond_end() => Beyond::Anything,
            LentPage::Lent(_) if intent != Intent::Copy => Beyond::Nothing,
            LentPage::Lent(_) | LentPage::Hole => Beyond::PartOfPage,
        };
        // Requested again because the file may have been truncated before its memory was lent.
        let len_bytes = backing.len_bytes(needed::<P>(wanted, is_unsettled, beyond))?;
        if let Some(outcome) = misfit::<P>(wanted, len_bytes, beyond) {
            return Ok(outcome);
        }
        let mut entry = match tree.grab(page, order, is_store, unmap) {
            Grab::Locked(entry) => entry,
            Grab::FallBack => return Ok(FaultOutcome::FallBack),
        };
        // Truncation removes entries after the new size is known: either the size is seen here, or the truncating
        // thread finds the entry.
        let len_bytes = backing.known_len_bytes();
        if misfit::<P>(wanted, len_bytes, beyond).is_some() {
            continue;
        }
        let LentPage::Lent(lent) = &place else { return zeros(&mut entry, view, wanted) };
        if entry.kind() == Kind::Zero {
            unmap(entry.pages());
        }
        entry.set_kind(Kind::Real);
        if is_unsettled {
            return settle(&entry, lent, wanted);
        }
        install(&mut entry, view, lent, wanted, len_bytes)?;
        return Ok(FaultOutcome::Installed);
    }
}

/// What of the pages of a fault may lie beyond the memory that the host has for the file.
#[derive(Clone, Copy)]
enum Beyond {
    /// Nothing: every byte may be stored to, or loaded.
    Nothing,
    /// A part of a single page, of which no such byte is accessed.
    PartOfPage,
    /// Anything: the access is survived.
    Anything,
}

/// Returns the size at which the pages of a fault fit, as far as that matters: a known size that is below it may be
/// older than the file.
fn needed<P: Platform>(wanted: Fault, is_unsettled: bool, beyond: Beyond) -> u64 {
    // Falling back needs no request; where storage is allocated, the end decides how much.
    let order = if is_unsettled { wanted.order } else { Order::Small };
    let bytes = bytes_of::<P>(order.pages(wanted.page, P::PAGE_SIZE));
    match beyond {
        Beyond::Nothing | Beyond::PartOfPage => bytes.end.saturating_sub(HOST_PAGE_LEN - 1),
        Beyond::Anything => bytes.start.saturating_add(1),
    }
}

/// Returns the outcome for a fault whose pages do not fit into a file of `len_bytes`.
fn misfit<P: Platform>(wanted: Fault, len_bytes: u64, beyond: Beyond) -> Option<FaultOutcome> {
    let Fault { page, order, .. } = wanted;
    if len_bytes <= first_byte_of::<P>(page) {
        return Some(FaultOutcome::OutOfFile);
    }
    let is_inside = bytes_of::<P>(order.pages(page, P::PAGE_SIZE)).end <= memory_end(len_bytes);
    match (order, beyond) {
        _ if is_inside => None,
        (_, Beyond::Anything) | (Order::Small, Beyond::PartOfPage) => None,
        (Order::Huge, Beyond::Nothing | Beyond::PartOfPage) => Some(FaultOutcome::FallBack),
        (Order::Small, Beyond::Nothing) => Some(FaultOutcome::PartialPage),
    }
}

/// Returns where the memory of a file ends, in bytes of the file, if the host's pages are the smallest ones.
fn memory_end(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(HOST_PAGE_LEN).saturating_mul(HOST_PAGE_LEN)
}

fn first_byte_of<P: Platform>(page: u64) -> u64 {
    page.saturating_mul(P::PAGE_SIZE.bytes())
}

/// Returns the bytes of `pages` of a file.
fn bytes_of<P: Platform>(pages: Range<u64>) -> Range<u64> {
    first_byte_of::<P>(pages.start)..first_byte_of::<P>(pages.end)
}

/// Allocates storage for the pages of a fault.
fn settle<P: Platform>(entry: &Locked<'_, P>, lent: &impl Lent, wanted: Fault) -> Result<FaultOutcome, Errno> {
    let order = wanted.order.min(entry.order());
    let pages = order.pages(wanted.page, P::PAGE_SIZE);
    let bytes = bytes_of::<P>(pages.clone());
    let first = bytes.start % RANGE_LEN;
    match lent.allocate(first..first + (bytes.end - bytes.start)) {
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
    let index = wanted.page / P::PAGE_SIZE.pages_per_huge();
    let LentPage::Lent(lent) = backing.lend(index, true)? else { return Ok(()) };
    let Some(mut entry) = tree.find(wanted.page) else { return Ok(()) };
    if entry.stamp() != unsettled.stamp || entry.kind() != Kind::Real {
        return Ok(());
    }
    install(&mut entry, view, &lent, Fault { order: unsettled.order, ..wanted }, backing.known_len_bytes())
}

/// Installs the entry's pages or, for a fault of a page, that page, in a file of `len_bytes`.
fn install<P: Platform>(
    entry: &mut Locked<'_, P>,
    view: &dyn View,
    lent: &impl Lent,
    wanted: Fault,
    len_bytes: u64,
) -> Result<(), Errno> {
    let is_writable = matches!(wanted.intent, Intent::Store | Intent::StoreSync);
    if is_writable {
        // Marked before a store is possible: a superfluous mark only causes a useless flush.
        entry.set_dirty(true);
    }
    let pages = wanted.order.min(entry.order()).pages(wanted.page, P::PAGE_SIZE);
    let bytes = bytes_of::<P>(pages.clone());
    let start = at(lent.start(), bytes.start % RANGE_LEN);
    match wanted.intent {
        Intent::Copy => {
            let len_bytes = bytes.end.min(memory_end(len_bytes)).saturating_sub(bytes.start) as usize;
            view.install_copy(wanted.page, Some(PagePart { start, len_bytes }))
        }
        Intent::Load | Intent::Store | Intent::StoreSync => view.install(pages, start, is_writable),
    }
}

fn zeros<P: Platform>(entry: &mut Locked<'_, P>, view: &dyn View, wanted: Fault) -> Result<FaultOutcome, Errno> {
    if entry.kind() != Kind::Real {
        entry.set_kind(Kind::Zero);
    }
    match wanted.intent {
        Intent::Copy => view.install_copy(wanted.page, None)?,
        Intent::Load => view.install_zeros(wanted.order.min(entry.order()).pages(wanted.page, P::PAGE_SIZE))?,
        // Backings fill holes before they lend memory for stores.
        Intent::Store | Intent::StoreSync => return Err(Errno::IO),
    }
    Ok(FaultOutcome::Installed)
}

/// Returns the address `offset` bytes after `start`, which is within the lent memory.
fn at(start: NonNull<u8>, offset: u64) -> NonNull<u8> {
    let address = start.as_ptr().wrapping_add(offset as usize);
    NonNull::new(address).expect("memory that is lent does not end at address 0")
}
