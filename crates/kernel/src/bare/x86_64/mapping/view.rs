//! One mapping's part of the page tables.

use core::{ops::Range, ptr::NonNull};

use spinning_top::Spinlock;
use transom_guest::{
    Errno,
    dax::{
        RANGE_LEN,
        entry::{Order, PAGE_LEN, PAGES_PER_HUGE},
        fault::View,
    },
};

use super::tables::{self, Entry};

const PAGE: usize = PAGE_LEN as usize;
const HUGE: usize = RANGE_LEN as usize;

/// The page tables of addresses at which a file is mapped, from its beginning; both are multiples of 2 MiB.
pub(super) struct Pages {
    addresses: Range<usize>,
    /// Held while the tables are changed.
    changing: Spinlock<()>,
}

impl Pages {
    pub(super) fn new(addresses: Range<usize>) -> Self {
        Self { addresses, changing: Spinlock::new(()) }
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Removes everything, and the tables.
    pub(super) fn remove(&self) {
        self.zap(0..u64::MAX, true);
        let _changing = self.changing.lock();
        self.addresses().step_by(HUGE).for_each(tables::clear_table);
    }

    /// Returns the addresses of `pages` within the mapping, by 2 MiB.
    fn parts(&self, pages: &Range<u64>) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.addresses();
        let page_end = pages.end.min((end - start) as u64 / PAGE_LEN);
        let at = |page: u64| start + (page.min(page_end) * PAGE_LEN) as usize;
        let (first, last) = (at(pages.start), at(page_end));
        (first / HUGE * HUGE..last).step_by(HUGE).map(move |part| part.max(first)..last.min(part + HUGE))
    }

    /// Calls `change` with each address of `pages` at which something is mapped, once for an entry, and the entry.
    fn each(&self, pages: &Range<u64>, mut change: impl FnMut(usize, Entry)) {
        let _changing = self.changing.lock();
        for part in self.parts(pages) {
            let mut at = part.start;
            while at < part.end {
                let entry = tables::get(at);
                if let Some(entry) = entry {
                    change(at, entry);
                }
                let is_huge = entry.is_some_and(|entry| entry.order == Order::Huge);
                at = if is_huge { part.end } else { at + PAGE };
            }
        }
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        let _changing = self.changing.lock();
        let first = self.addresses.start + (pages.start * PAGE_LEN) as usize;
        for part in self.parts(&pages) {
            let physical = |at: usize| (from.as_ptr() as usize + (at - first)) as u64;
            let entry =
                |order, at| Entry { order, physical: physical(at), is_writable, is_copy: false, is_dirty: false };
            let is_copy = |at| tables::get(at).is_some_and(|entry| entry.is_copy);
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

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        // A window maps holes as file pages, because the host may fill them at any time.
        Err(Errno::OPNOTSUPP)
    }

    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno> {
        let _changing = self.changing.lock();
        let at = self.addresses.start + (page * PAGE_LEN) as usize;
        if tables::get(at).is_some_and(|entry| entry.is_copy) {
            return Ok(());
        }
        tables::set_copy(at, from).ok_or(Errno::NOMEM)
    }

    /// An entry of 2 MiB is removed as a whole; faults bring back what was not meant.
    fn zap(&self, pages: Range<u64>, with_copies: bool) {
        self.each(&pages, |at, entry| {
            if with_copies || !entry.is_copy {
                tables::clear(at);
            }
        });
    }

    fn write_protect(&self, pages: Range<u64>) {
        self.each(&pages, |at, entry| {
            if entry.is_writable && !entry.is_copy {
                // Smaller than what is there, so there is a table for it.
                let _ = tables::set(at, Entry { is_writable: false, ..entry });
            }
        });
    }

    fn allows_beyond_end(&self) -> bool {
        // An access past the end may end the machine: the front end's memory has no page there.
        false
    }
}

const _: () = assert!(PAGES_PER_HUGE as usize * PAGE == HUGE);
