//! One mapping's part of the page tables.

use core::{
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use transom_guest::{
    Errno,
    dax::{
        RANGE_LEN,
        entry::Order,
        fault::{PagePart, View},
    },
};

use super::{Entry, PAGE_LEN, page, tables, window};
use crate::bare::platform::PAGES_PER_HUGE;

const PAGE: usize = PAGE_LEN as usize;
const HUGE: usize = RANGE_LEN as usize;

/// The page tables of addresses at which a file is mapped, from its beginning; both are multiples of 2 MiB.
pub(super) struct Pages {
    addresses: Range<usize>,
    /// Nothing is installed any more: the addresses may be another mapping's. Changed under [`tables::CHANGING`].
    is_removed: AtomicBool,
}

impl Pages {
    pub(super) fn new(addresses: Range<usize>) -> Self {
        Self { addresses, is_removed: AtomicBool::new(false) }
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Removes everything, and the tables. A fault that another processor is serving installs nothing then.
    pub(super) fn remove(&self) {
        let _changing = tables::CHANGING.lock();
        self.is_removed.store(true, Ordering::Relaxed);
        tables::remove(self.addresses(), true);
        tables::clear_tables(self.addresses());
    }

    /// Returns whether the mapping has been removed.
    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Returns ESTALE if the mapping has been removed; called under [`tables::CHANGING`].
    fn check(&self) -> Result<(), Errno> {
        if self.is_removed() { Err(Errno::STALE) } else { Ok(()) }
    }

    /// Returns the addresses of `pages` within the mapping.
    fn of(&self, pages: &Range<u64>) -> Range<usize> {
        let len_pages = self.addresses.len() as u64 / PAGE_LEN;
        let at = |page: u64| self.addresses.start + (page.min(len_pages) * PAGE_LEN) as usize;
        at(pages.start)..at(pages.end)
    }

    /// Returns the same, by 2 MiB.
    fn parts(&self, pages: &Range<u64>) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.of(pages);
        (start / HUGE * HUGE..end).step_by(HUGE).map(move |part| part.max(start)..end.min(part + HUGE))
    }

    /// Maps `pages`, each to the physical address that `physical` returns for its own address; leaves private copies.
    fn map(&self, pages: Range<u64>, physical: impl Fn(usize) -> u64, is_writable: bool) -> Result<(), Errno> {
        let _changing = tables::CHANGING.lock();
        self.check()?;
        let entry = |order, at| Entry { order, physical: physical(at), is_writable, is_copy: false, is_dirty: false };
        let is_copy = |at| tables::get(at).is_some_and(|entry| entry.is_copy);
        for part in self.parts(&pages) {
            let is_huge = part.len() == HUGE && physical(part.start).is_multiple_of(RANGE_LEN);
            if is_huge && !part.clone().step_by(PAGE).any(is_copy) {
                tables::set(part.start, entry(Order::Huge, part.start)).ok_or(Errno::NOMEM)?;
                continue;
            }
            for at in part.step_by(PAGE).filter(|&at| !is_copy(at)) {
                tables::set(at, entry(Order::Small, at)).ok_or(Errno::NOMEM)?;
            }
        }
        Ok(())
    }

    /// Returns the entry for an address.
    pub(super) fn entry(&self, address: usize) -> Option<Entry> {
        let _changing = tables::CHANGING.lock();
        tables::get(address)
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        let first = self.addresses.start + (pages.start * PAGE_LEN) as usize;
        let physical = window::physical(from);
        self.map(pages, |at| physical + (at - first) as u64, is_writable)
    }

    /// All holes are the same zeros, which the processor refuses to store to.
    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno> {
        let zeros = page::zeros().ok_or(Errno::NOMEM)?;
        self.map(pages, |at| (zeros + at % HUGE) as u64, false)
    }

    fn install_copy(&self, page: u64, from: Option<PagePart>) -> Result<(), Errno> {
        let _changing = tables::CHANGING.lock();
        self.check()?;
        let at = self.addresses.start + (page * PAGE_LEN) as usize;
        if tables::get(at).is_some_and(|entry| entry.is_copy) {
            return Ok(());
        }
        tables::set_copy(at, from).ok_or(Errno::NOMEM)
    }

    fn zap(&self, pages: Range<u64>, with_copies: bool) {
        let _changing = tables::CHANGING.lock();
        tables::remove(self.of(&pages), with_copies);
    }

    fn write_protect(&self, pages: Range<u64>) {
        let _changing = tables::CHANGING.lock();
        tables::protect(self.of(&pages));
    }

    fn allows_beyond_end(&self) -> bool {
        // An access past the end may end the machine: the front end's memory has no page there.
        false
    }
}

const _: () = assert!(PAGES_PER_HUGE as usize * PAGE == HUGE);
