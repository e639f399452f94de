//! How a fault in a mapped file is served.
//!
//! A [`Backing`] says where bytes of the file are, a [`View`] is one mapping's page tables, and the tree of
//! [`entry`](super::entry) keeps faults on the same page apart. Who faults asks for a 2 MiB entry where address and
//! file are congruent, and for one of 4 KiB where that is answered with [`Outcome::FallBack`].
//!
//! The range is pinned before the entry is locked: what takes ranges back has them to itself first, then locks entries.

use core::{ops::Range, ptr::NonNull};

use super::entry::{Grab, Kind, Locked, Order, PAGE_LEN, PAGES_PER_HUGE, Tree};
use crate::{Errno, Platform};

/// An access to a page that is not mapped for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The page of the file, in units of [`PAGE_LEN`].
    pub page: u64,
    /// What the faulting address would allow for.
    pub order: Order,
    /// What is to be done.
    pub intent: Intent,
}

/// What a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To load.
    Load,
    /// To store to the file.
    Store,
    /// To store to the file, durably without more requests once the processor's cache is flushed (MAP_SYNC).
    StoreSync,
    /// To store to a copy of the page that is the mapping's own.
    Copy,
}

/// What became of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The access may be made again.
    Installed,
    /// It is to be served with an entry of 4 KiB.
    FallBack,
    /// The page lies wholly beyond the end of the file.
    OutOfFile,
    /// There is an error behind it.
    Failed(Errno),
    /// Nothing is installed: the pages have their places on the storage, which are to be made durable first, and the
    /// fault finished with [`finish_sync`].
    NeedsSync(Unsettled),
}

/// What a fault waits for that stores durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// Of the file.
    pub pages: Range<u64>,
    order: Order,
    /// The entry's, when the pages got their places.
    stamp: Option<u64>,
}

/// Where the bytes of a part of a file are.
pub enum Place<L> {
    /// In memory, for as long as it is lent.
    Lent(L),
    /// Nowhere: they read as zeros, and nobody else will store to them.
    Hole,
}

/// An aligned 2 MiB of a file in memory.
pub trait Lent {
    /// Where it begins.
    fn start(&self) -> NonNull<u8>;

    /// Whether a store to these bytes may find a place on the storage that is lost if the machine stops, or none yet.
    /// Where it may not, whoever serves the store below sees to it (Linux: MAP_SYNC).
    fn is_unstable(&self) -> bool;

    /// Has each of `pages`, counted from the beginning of these 2 MiB, get the place on the storage that a store there
    /// would give it; changes no byte. Errors: EFAULT where the file has no such page.
    fn allocate(&self, pages: Range<u64>) -> Result<(), Errno>;
}

/// A file, for those who map it.
pub trait Backing {
    /// Memory that is lent.
    type Lent<'a>: Lent
    where
        Self: 'a;

    /// Returns the size of the file, in bytes. Asks the server if the size that is known is below `wanted`.
    fn len_bytes(&self, wanted: u64) -> Result<u64, Errno>;

    /// Returns the size of the file as it is known, in bytes. Sends nothing: an entry is locked. At least what
    /// [`Self::len_bytes`] returned last, unless the file was cut since.
    fn known_len_bytes(&self) -> u64;

    /// Returns the 2 MiB number `index` of the file, for stores if `is_write`: a hole is then filled first. Blocks
    /// until the memory is there.
    fn lend(&self, index: u64, is_write: bool) -> Result<Place<Self::Lent<'_>>, Errno>;
}

/// The page tables of one mapping of a file. Pages are counted from the beginning of the file.
pub trait View: Send + Sync {
    /// Lets the mapping have `pages`, whole or as far as it reaches, from the memory that begins at `from`; read-only
    /// unless `is_writable`. What is installed there is replaced, but for copies of its own.
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno>;

    /// Lets the mapping have zeros, read-only.
    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno>;

    /// Gives the mapping a copy of `page`, of what is at `from` or zeros, which it may store to.
    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno>;

    /// Takes `pages` out, copies of the mapping's own only where `with_copies`.
    fn zap(&self, pages: Range<u64>, with_copies: bool);

    /// Has the next store to `pages` fault. Where there is nothing, nothing is done.
    fn write_protect(&self, pages: Range<u64>);

    /// Whether a part of 2 MiB may lie beyond the end of the file: the memory itself has no pages there.
    fn allows_beyond_end(&self) -> bool;
}

/// Serves a fault of the mapping `view`.
///
/// `unmap` takes pages out of every mapping of the file. Blocks while another fault has the entry, and while the file's
/// memory is fetched. Asks for nothing while it has the entry itself.
pub fn fault<P: Platform, B: Backing>(
    tree: &Tree<P>,
    backing: &B,
    view: &dyn View,
    unmap: &dyn Fn(Range<u64>),
    wanted: Fault,
) -> Outcome {
    serve(tree, backing, view, unmap, wanted).unwrap_or_else(Outcome::Failed)
}

fn serve<P: Platform, B: Backing>(
    tree: &Tree<P>,
    backing: &B,
    view: &dyn View,
    unmap: &dyn Fn(Range<u64>),
    wanted: Fault,
) -> Result<Outcome, Errno> {
    let Fault { page, order, intent } = wanted;
    // A copy of 2 MiB for the sake of one store would be waste.
    let order = if intent == Intent::Copy { Order::Small } else { order };
    let wanted = Fault { order, ..wanted };
    let is_store = matches!(intent, Intent::Store | Intent::StoreSync);
    loop {
        match fits(backing, view, order, page)? {
            Fit::Inside => {}
            Fit::Partly => return Ok(Outcome::FallBack),
            Fit::Outside => return Ok(Outcome::OutOfFile),
        }
        let place = backing.lend(Order::Huge.first_page(page) / PAGES_PER_HUGE, is_store)?;
        let is_unsettled = intent == Intent::StoreSync && matches!(&place, Place::Lent(lent) if lent.is_unstable());
        // Asked for once more, since the file may have been cut before its memory was lent; and for the end of the 2
        // MiB, which decides how much is settled.
        let last_page = if is_unsettled { order.pages(page).end - 1 } else { page };
        if backing.len_bytes(first_byte_of(last_page) + 1)? <= first_byte_of(page) {
            return Ok(Outcome::OutOfFile);
        }
        let mut entry = match tree.grab(page, order, is_store, unmap) {
            Grab::Locked(entry) => entry,
            Grab::FallBack => return Ok(Outcome::FallBack),
        };
        // Whoever cuts the file takes entries out after the new size is known: either the size is seen here, or the
        // entry is found there.
        if backing.known_len_bytes() <= first_byte_of(page) {
            continue;
        }
        let Place::Lent(lent) = &place else { return zeros(&mut entry, view, wanted) };
        if entry.kind() == Kind::Zero {
            unmap(entry.pages());
        }
        entry.set_kind(Kind::Real);
        if is_unsettled {
            return settle(&entry, backing, lent, wanted);
        }
        install(&mut entry, view, lent, wanted)?;
        return Ok(Outcome::Installed);
    }
}

fn first_byte_of(page: u64) -> u64 {
    page.saturating_mul(PAGE_LEN)
}

/// Has the pages of a fault get their places on the storage.
///
/// None beyond the end of the file is among them, whatever the view allows for: once the file had grown, a store there
/// would get a place that nobody has made durable.
fn settle<P: Platform, B: Backing>(
    entry: &Locked<'_, P>,
    backing: &B,
    lent: &impl Lent,
    wanted: Fault,
) -> Result<Outcome, Errno> {
    let order = wanted.order.min(entry.order());
    let pages = order.pages(wanted.page);
    if order == Order::Huge && backing.known_len_bytes().div_ceil(PAGE_LEN) < pages.end {
        return Ok(Outcome::FallBack);
    }
    let first = pages.start % PAGES_PER_HUGE;
    match lent.allocate(first..first + (pages.end - pages.start)) {
        Ok(()) => Ok(Outcome::NeedsSync(Unsettled { pages, order, stamp: entry.stamp() })),
        // The file has become shorter.
        Err(Errno::FAULT) if order == Order::Huge => Ok(Outcome::FallBack),
        Err(Errno::FAULT) => Ok(Outcome::OutOfFile),
        Err(error) => Err(error),
    }
}

/// Finishes a fault whose pages were made durable with the result `synced`: its error is the fault's.
///
/// Where somebody has removed the entry meanwhile, if only to make another, the pages may have lost their places:
/// nothing is installed, and the access that is then made again faults again.
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
    let Place::Lent(lent) = backing.lend(index, true)? else { return Ok(()) };
    let Some(mut entry) = tree.find(wanted.page) else { return Ok(()) };
    if entry.stamp() != unsettled.stamp || entry.kind() != Kind::Real {
        return Ok(());
    }
    install(&mut entry, view, &lent, Fault { order: unsettled.order, ..wanted })
}

/// Installs what the entry stands for, or for a fault of 4 KiB its page.
fn install<P: Platform>(
    entry: &mut Locked<'_, P>,
    view: &dyn View,
    lent: &impl Lent,
    wanted: Fault,
) -> Result<(), Errno> {
    let is_writable = matches!(wanted.intent, Intent::Store | Intent::StoreSync);
    if is_writable {
        // Before somebody can store: a mark too many flushes for nothing.
        entry.set_dirty(true);
    }
    let pages = wanted.order.min(entry.order()).pages(wanted.page);
    let from = at(lent.start(), pages.start % PAGES_PER_HUGE * PAGE_LEN);
    match wanted.intent {
        Intent::Copy => view.install_copy(wanted.page, Some(from)),
        Intent::Load | Intent::Store | Intent::StoreSync => view.install(pages, from, is_writable),
    }
}

fn zeros<P: Platform>(entry: &mut Locked<'_, P>, view: &dyn View, wanted: Fault) -> Result<Outcome, Errno> {
    if entry.kind() != Kind::Real {
        entry.set_kind(Kind::Zero);
    }
    match wanted.intent {
        Intent::Copy => view.install_copy(wanted.page, None)?,
        Intent::Load => view.install_zeros(wanted.order.min(entry.order()).pages(wanted.page))?,
        // Whoever lends fills holes first.
        Intent::Store | Intent::StoreSync => return Err(Errno::IO),
    }
    Ok(Outcome::Installed)
}

enum Fit {
    Inside,
    /// It reaches beyond the end.
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

/// `offset` bytes behind `start`, within what is lent.
fn at(start: NonNull<u8>, offset: u64) -> NonNull<u8> {
    let address = start.as_ptr().wrapping_add(offset as usize);
    NonNull::new(address).expect("memory that is lent does not end at address 0")
}
