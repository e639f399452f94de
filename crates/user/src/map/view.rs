//! The page tables of one mapping: which pages of the file its area shows.

use std::{collections::HashMap, io, iter::once, ops::Range, ptr::NonNull};

use parking_lot::Mutex;
use transom_guest::{
    Errno,
    dax::fault::{PagePart, View},
};

use super::{
    area::Area,
    bits::{BITS, Bits},
    room::Room,
};
use crate::platform::{PAGE_LEN, PAGES_PER_HUGE};

/// Number of aligned pages that a private mapping copies at once, if none are copied yet: each isolated copy uses one
/// of the 65,530 mappings that Linux allows a process.
const COPIED_AT_ONCE: u64 = 16;

/// One mapping's view of a file.
pub(super) struct Pages {
    area: Area,
    /// The first page of the file in the area, a multiple of [`PAGES_PER_HUGE`].
    first: u64,
    /// By number of the 2 MiB chunk in the file. Held briefly, while page tables are changed.
    chunks: Mutex<Chunks>,
}

type Chunks = HashMap<u64, Chunk>;

/// The state of an aligned chunk of 2 MiB.
#[derive(Debug, Clone, Copy, Default)]
struct Chunk {
    shown: Bits,
    /// A subset of `shown`.
    writable: Bits,
    /// Private copies; disjoint from `shown`.
    copies: Bits,
}

impl Pages {
    pub(super) fn new(area: Area, first: u64) -> Self {
        Self { area, first, chunks: Mutex::default() }
    }

    pub(super) fn area(&self) -> &Area {
        &self.area
    }

    /// Returns the page of the file that belongs at `address`, which is in the area.
    pub(super) fn page_at(&self, address: usize) -> u64 {
        self.first + ((address - self.area.addresses().start) as u64) / PAGE_LEN
    }

    /// Returns whether `page` is already accessible, so that there is nothing left to do for a fault.
    pub(super) fn allows(&self, page: u64, is_write: bool) -> bool {
        let chunks = self.chunks.lock();
        let place = (page % PAGES_PER_HUGE) as usize;
        let allows = |chunk: &Chunk| {
            let shown = if is_write { &chunk.writable } else { &chunk.shown };
            chunk.copies.contains(place) || shown.contains(place)
        };
        chunks.get(&(page / PAGES_PER_HUGE)).is_some_and(allows)
    }

    /// Returns the bytes in the area of the pages `places` of chunk `index`.
    fn bytes(&self, index: u64, places: &Range<usize>) -> Range<usize> {
        let page = |place: usize| (index * PAGES_PER_HUGE + place as u64 - self.first) as usize * PAGE_LEN as usize;
        page(places.start)..page(places.end)
    }

    /// Returns the part of `pages` in the area, as chunk numbers and the pages within each chunk.
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

    /// Changes what is shown. If the process has too many mappings, hides everything but copies and tries again. After
    /// an error, everything but copies is hidden.
    fn change(&self, mut change: impl FnMut(&mut Chunks) -> io::Result<()>) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        let Err(error) = change(&mut chunks) else { return Ok(()) };
        let _room = Room::make();
        must(self.hide_all(&mut chunks));
        if error.kind() != io::ErrorKind::OutOfMemory {
            return Err(error);
        }
        let changed = change(&mut chunks);
        if changed.is_err() {
            must(self.hide_all(&mut chunks));
        }
        changed
    }

    fn show(&self, chunks: &mut Chunks, pages: &Range<u64>, from: NonNull<u8>, is_writable: bool) -> io::Result<()> {
        for (index, places) in self.chunks_of(pages) {
            let chunk = chunks.entry(index).or_default();
            let free = Bits::full().without(&chunk.copies);
            for run in free.runs(places) {
                let page = index * PAGES_PER_HUGE + run.start as u64;
                let from = from.as_ptr().wrapping_add(((page - pages.start) * PAGE_LEN) as usize);
                let from = NonNull::new(from).expect("a mapping does not wrap around");
                chunk.shown.set(run.clone(), true);
                chunk.writable.set(run.clone(), is_writable);
                self.area.alias(self.bytes(index, &run), from, is_writable)?;
            }
        }
        Ok(())
    }

    /// Copies `page` and its neighbours from `from`. Returns false if `page` does not exist there.
    fn copy(&self, chunks: &mut Chunks, page: u64, from: Option<NonNull<u8>>) -> io::Result<bool> {
        let index = page / PAGES_PER_HUGE;
        let chunk = chunks.entry(index).or_default();
        let place = (page % PAGES_PER_HUGE) as usize;
        if chunk.copies.contains(place) {
            return Ok(true);
        }
        let group = place - place % COPIED_AT_ONCE as usize;
        let group = group..group + COPIED_AT_ONCE as usize;
        let is_alone = from.is_none() || chunk.copies.runs(group.clone()).next().is_some();
        let places = if is_alone { place..place + 1 } else { group };
        let from =
            from.and_then(|from| NonNull::new(from.as_ptr().wrapping_sub((place - places.start) * PAGE_LEN as usize)));
        let before = *chunk;
        // After a failure, what is there is unknown.
        chunk.shown.set(places.clone(), true);
        let there = self.area.fill(self.bytes(index, &places), from)?;
        *chunk = before;
        let places = places.start..places.start + there;
        chunk.copies.set(places.clone(), true);
        chunk.shown.set(places.clone(), false);
        chunk.writable.set(places.clone(), false);
        Ok(places.contains(&place))
    }

    fn hide(&self, chunks: &mut Chunks, pages: &Range<u64>, with_copies: bool) -> io::Result<()> {
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

    /// Hides everything but copies; faults bring it back.
    ///
    /// Hiding a part of a kernel mapping would split it. This removes whole mappings, and everything between two copies
    /// at once.
    fn hide_all(&self, chunks: &mut Chunks) -> io::Result<()> {
        let mut indices: Vec<_> = chunks.keys().copied().collect();
        indices.sort_unstable();
        let mut between: Option<Range<usize>> = None;
        for index in indices {
            let Chunk { shown, copies, .. } = chunks[&index];
            let mut at = 0;
            for copy in copies.runs(0..BITS).chain(once(BITS..BITS)) {
                for run in shown.runs(at..copy.start) {
                    let bytes = self.bytes(index, &run);
                    between = Some(between.map_or(bytes.start, |before| before.start)..bytes.end);
                }
                if !copy.is_empty()
                    && let Some(bytes) = between.take()
                {
                    self.area.clear(bytes)?;
                }
                at = copy.end;
            }
        }
        if let Some(bytes) = between {
            self.area.clear(bytes)?;
        }
        chunks.retain(|_, chunk| {
            (chunk.shown, chunk.writable) = (Bits::default(), Bits::default());
            !chunk.copies.is_empty()
        });
        Ok(())
    }

    fn protect(&self, chunks: &mut Chunks, pages: &Range<u64>) -> io::Result<()> {
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

/// Aborts the process if pages cannot be removed although [`Room`] was made: other threads used up that room, or the
/// kernel is out of memory. Continuing would show memory that no longer belongs to the file.
fn must(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "cannot remove pages of a mapped file; aborting");
        std::process::abort();
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        self.change(|chunks| self.show(chunks, &pages, from, is_writable)).map_err(errno_of_io_error)
    }

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        // A window maps holes as file pages, because the host may fill them at any time.
        Err(Errno::OPNOTSUPP)
    }

    fn install_copy(&self, page: u64, from: Option<PagePart>) -> Result<(), Errno> {
        // The file has a whole page: it is one of the host's.
        let from = from.map(|part| part.start);
        let mut is_there = false;
        let copied = self.change(|chunks| {
            is_there = self.copy(chunks, page, from)?;
            Ok(())
        });
        copied.map_err(errno_of_io_error)?;
        if is_there { Ok(()) } else { Err(Errno::FAULT) }
    }

    fn zap(&self, pages: Range<u64>, with_copies: bool) {
        must(self.change(|chunks| self.hide(chunks, &pages, with_copies)));
    }

    fn write_protect(&self, pages: Range<u64>) {
        must(self.change(|chunks| self.protect(chunks, &pages)));
    }

    fn allows_beyond_end(&self) -> bool {
        true
    }
}

fn errno_of_io_error(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::OutOfMemory => Errno::NOMEM,
        _ => error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw),
    }
}

const _: () = assert!(BITS as u64 == PAGES_PER_HUGE);
