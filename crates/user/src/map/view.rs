//! The page tables of one mapping: what is shown at which page of its area.

use std::{collections::HashMap, io, iter::once, ops::Range, ptr::NonNull};

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
    room::Room,
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
    chunks: Mutex<Chunks>,
}

type Chunks = HashMap<u64, Chunk>;

/// What is shown of an aligned 2 MiB.
#[derive(Debug, Clone, Copy, Default)]
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

    /// Makes a change of what is shown. Where the process has too many mappings for it, it is made again with
    /// everything but copies hidden; where it fails, everything but copies is hidden.
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
                let from = NonNull::new(from).expect("a mapping does not wrap round");
                chunk.shown.set(run.clone(), true);
                chunk.writable.set(run.clone(), is_writable);
                self.area.alias(self.bytes(index, &run), from, is_writable)?;
            }
        }
        Ok(())
    }

    /// Gives the mapping a copy of `page`, and of its neighbours; false where there is no such page at `from`.
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
        // What is there when this fails is not known.
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
    /// Who hides a part of what the kernel holds as one mapping makes more of it. This takes whole ones away, and what
    /// lies between two copies at once.
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

/// Memory that must not be seen any longer cannot be taken away, though room was made for it: other threads have taken
/// that, or the kernel has no memory of its own left. Nothing but SIGABRT keeps the file's promises then.
fn must(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "pages of a mapped file cannot be taken away: the process ends");
        std::process::abort();
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        self.change(|chunks| self.show(chunks, &pages, from, is_writable)).map_err(errno)
    }

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        // A window shows holes as the pages that they become: the host may fill them at any time.
        Err(Errno::OPNOTSUPP)
    }

    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno> {
        let mut is_there = false;
        let copied = self.change(|chunks| {
            is_there = self.copy(chunks, page, from)?;
            Ok(())
        });
        copied.map_err(errno)?;
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

fn errno(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::OutOfMemory => Errno::NOMEM,
        _ => error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw),
    }
}

const _: () = assert!(BITS as u64 == PAGES_PER_HUGE);
