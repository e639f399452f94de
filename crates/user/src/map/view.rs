//! The page tables of one mapping: what is shown at which page of its area.

use std::{collections::HashMap, io, ops::Range, ptr::NonNull};

use parking_lot::Mutex;
use transom_guest::{
    Errno,
    dax::{
        entry::{PAGE_LEN, PAGES_PER_HUGE},
        fault::View,
    },
};

use super::{
    bits::{BITS, Bits},
    space::Area,
};

/// A copy of a private mapping takes this many aligned pages at once, where there are none: each copy costs the process
/// one of its mappings, of which Linux allows 65,530.
const COPIED_AT_ONCE: u64 = 16;

/// One mapping's view of a file.
pub(super) struct Pages {
    area: Area,
    /// The page of the file that the area begins with, a multiple of [`PAGES_PER_HUGE`].
    first: u64,
    /// By the number of the 2 MiB in the file. Held while page tables are changed, for moments.
    chunks: Mutex<HashMap<u64, Chunk>>,
}

/// What is shown of an aligned 2 MiB.
#[derive(Default)]
struct Chunk {
    shown: Bits,
    /// Of those shown.
    writable: Bits,
    /// Memory of the mapping's own; not among those shown.
    copies: Bits,
}

impl Pages {
    pub(super) fn new(area: Area, first: u64) -> Self {
        Self { area, first, chunks: Mutex::default() }
    }

    pub(super) fn area(&self) -> &Area {
        &self.area
    }

    /// The page of the file that is to be seen at `address`, of the area.
    pub(super) fn page_at(&self, address: usize) -> u64 {
        self.first + ((address - self.area.addresses().start) as u64) / PAGE_LEN
    }

    /// Whether `page` is shown already, so that a fault on it is over.
    pub(super) fn allows(&self, page: u64, is_write: bool) -> bool {
        let chunks = self.chunks.lock();
        let place = (page % PAGES_PER_HUGE) as usize;
        let allows = |chunk: &Chunk| {
            let shown = if is_write { &chunk.writable } else { &chunk.shown };
            chunk.copies.contains(place) || shown.contains(place)
        };
        chunks.get(&(page / PAGES_PER_HUGE)).is_some_and(allows)
    }

    /// Bytes in the area of `places` of the 2 MiB number `index`.
    fn bytes(&self, index: u64, places: &Range<usize>) -> Range<usize> {
        let page = |place: usize| (index * PAGES_PER_HUGE + place as u64 - self.first) as usize * PAGE_LEN as usize;
        page(places.start)..page(places.end)
    }

    /// Those of `pages` that lie in the area, by number of 2 MiB and places in it.
    fn chunks_of(&self, pages: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let end = self.first + (self.area.addresses().len() as u64) / PAGE_LEN;
        let (start, end) = (pages.start.max(self.first), pages.end.min(end));
        let indices = if start < end { start / PAGES_PER_HUGE..end.div_ceil(PAGES_PER_HUGE) } else { 0..0 };
        indices.map(move |index| {
            let first = index * PAGES_PER_HUGE;
            let places = start.max(first) - first..end.min(first + PAGES_PER_HUGE) - first;
            (index, places.start as usize..places.end as usize)
        })
    }

    fn show(&self, pages: &Range<u64>, from: NonNull<u8>, is_writable: bool) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        for (index, places) in self.chunks_of(pages) {
            let chunk = chunks.entry(index).or_default();
            let free = Bits::full().without(&chunk.copies);
            for run in free.runs(places) {
                let page = index * PAGES_PER_HUGE + run.start as u64;
                let from = from.as_ptr().wrapping_add(((page - pages.start) * PAGE_LEN) as usize);
                let from = NonNull::new(from).expect("a mapping does not wrap round");
                self.area.alias(self.bytes(index, &run), from, is_writable)?;
                chunk.shown.set(run.clone(), true);
                chunk.writable.set(run, is_writable);
            }
        }
        Ok(())
    }

    fn copy(&self, page: u64, from: Option<NonNull<u8>>) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        let index = page / PAGES_PER_HUGE;
        let chunk = chunks.entry(index).or_default();
        let place = (page % PAGES_PER_HUGE) as usize;
        if chunk.copies.contains(place) {
            return Ok(());
        }
        let group = place - place % COPIED_AT_ONCE as usize;
        let group = group..group + COPIED_AT_ONCE as usize;
        let is_alone = from.is_none() || chunk.copies.runs(group.clone()).next().is_some();
        let places = if is_alone { place..place + 1 } else { group };
        let from =
            from.and_then(|from| NonNull::new(from.as_ptr().wrapping_sub((place - places.start) * PAGE_LEN as usize)));
        let there = self.area.fill(self.bytes(index, &places), from)?;
        let places = places.start..places.start + there;
        chunk.copies.set(places.clone(), true);
        chunk.shown.set(places.clone(), false);
        chunk.writable.set(places.clone(), false);
        if places.contains(&place) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EFAULT)) }
    }

    fn hide(&self, pages: &Range<u64>, with_copies: bool) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        for (index, places) in self.chunks_of(pages) {
            let Some(chunk) = chunks.get_mut(&index) else { continue };
            let there = if with_copies { chunk.shown.or(&chunk.copies) } else { chunk.shown };
            for run in there.runs(places) {
                self.area.clear(self.bytes(index, &run))?;
                chunk.shown.set(run.clone(), false);
                chunk.writable.set(run.clone(), false);
                if with_copies {
                    chunk.copies.set(run, false);
                }
            }
            if chunk.shown.is_empty() && chunk.copies.is_empty() {
                chunks.remove(&index);
            }
        }
        Ok(())
    }

    fn protect(&self, pages: &Range<u64>) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        for (index, places) in self.chunks_of(pages) {
            let Some(chunk) = chunks.get_mut(&index) else { continue };
            let writable = chunk.writable;
            for run in writable.runs(places) {
                self.area.write_protect(self.bytes(index, &run))?;
                chunk.writable.set(run, false);
            }
        }
        Ok(())
    }
}

/// Memory that must not be seen any longer cannot be taken away: there are too many mappings to split one. Nothing but an
/// end keeps the file's promises then.
fn must(result: io::Result<()>) {
    if let Err(error) = result {
        panic!("cannot take pages of a mapped file away: {error}");
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        self.show(&pages, from, is_writable).map_err(errno)
    }

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        // A window shows holes as the pages that they become: the host may fill them at any time.
        Err(Errno::OPNOTSUPP)
    }

    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno> {
        self.copy(page, from).map_err(errno)
    }

    fn zap(&self, pages: Range<u64>, with_copies: bool) {
        must(self.hide(&pages, with_copies));
    }

    fn write_protect(&self, pages: Range<u64>) {
        must(self.protect(&pages));
    }

    fn allows_beyond_end(&self) -> bool {
        true
    }
}

fn errno(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::OutOfMemory => Errno::NOMEM,
        _ => error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw),
    }
}

const _: () = assert!(BITS as u64 == PAGES_PER_HUGE);
