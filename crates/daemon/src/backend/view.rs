//! The guest's memory as one thread reads and writes it: addresses are found without a search.
//!
//! vm-memory searches the guest's regions at each access, and a request makes about fifteen: of the ring's indices and
//! entries, of its descriptors and of its buffers. Nearly all are in the region of the access before, so
//! [`MemoryView`] looks there first.

use std::{cell::Cell, iter::FusedIterator};

use vm_memory::{
    ByteValued, Bytes, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryRegion, Permissions, VolatileMemory,
    VolatileSlice,
    guest_memory::{Error, GuestMemoryBackendSliceIterator, GuestMemorySliceIterator},
};

use super::{GuestRam, dirty_log::RegionLog};

/// The guest's memory, and the region that was used last.
pub(super) struct MemoryView<'m> {
    memory: &'m GuestRam,
    latest: Cell<Option<Region<'m>>>,
}

/// A region in this process's address space.
#[derive(Clone, Copy)]
struct Region<'m> {
    start: u64,
    bytes: VolatileSlice<'m>,
}

impl<'m> MemoryView<'m> {
    /// Creates a view of `memory`.
    pub(super) fn new(memory: &'m GuestRam) -> Self {
        Self { memory, latest: Cell::new(None) }
    }

    /// Returns the memory itself.
    pub(super) fn memory(&self) -> &'m GuestRam {
        self.memory
    }

    /// Returns the `len` bytes at `addr` in one piece for each region that they are in. A piece is an error if it is in
    /// none, and the last one then.
    pub(super) fn slices(&self, addr: GuestAddress, len: usize) -> Slices<'m> {
        match self.latest.get().and_then(|region| region.slice(addr, len)).or_else(|| self.search(addr, len)) {
            Some(slice) => Slices::One(Some(slice)),
            None => Slices::Searched(GuestMemoryBackend::get_slices(self.memory, addr, len)),
        }
    }

    /// Returns the value at `addr`, or `None` if it is not in the guest's memory.
    pub(super) fn read<T: ByteValued>(&self, addr: GuestAddress) -> Option<T> {
        match self.latest.get().and_then(|region| region.slice(addr, size_of::<T>())) {
            Some(slice) => Some(slice.get_ref(0).ok()?.load()),
            None => self.read_obj(addr).ok(),
        }
    }

    /// Returns the bytes if they are in one region, which the next access tries first.
    #[cold]
    fn search(&self, addr: GuestAddress, len: usize) -> Option<VolatileSlice<'m>> {
        let region = self.memory.find_region(addr)?;
        let region = Region { start: region.start_addr().0, bytes: region.as_volatile_slice().ok()? };
        self.latest.set(Some(region));
        region.slice(addr, len)
    }
}

impl<'m> Region<'m> {
    /// Returns the `len` bytes at `addr`, or `None` if some of them are elsewhere or `len` is 0.
    fn slice(&self, addr: GuestAddress, len: usize) -> Option<VolatileSlice<'m>> {
        let offset = addr.0.checked_sub(self.start)?;
        if len == 0 { None } else { self.bytes.subslice(usize::try_from(offset).ok()?, len).ok() }
    }
}

/// Pieces of guest memory: what [`MemoryView::slices`] returns.
pub(super) enum Slices<'m> {
    One(Option<VolatileSlice<'m>>),
    Searched(GuestMemoryBackendSliceIterator<'m, GuestRam>),
}

impl<'m> Iterator for Slices<'m> {
    type Item = Result<VolatileSlice<'m>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(slice) => slice.take().map(Ok),
            Self::Searched(slices) => slices.next(),
        }
    }
}

impl FusedIterator for Slices<'_> {}
impl<'m> GuestMemorySliceIterator<'m, ()> for Slices<'m> {}

/// For the crate's ring.
impl GuestMemory for MemoryView<'_> {
    type PhysicalMemory = GuestRam;
    type Bitmap = RegionLog;

    fn check_range(&self, addr: GuestAddress, len: usize, access: Permissions) -> bool {
        GuestMemory::check_range(self.memory, addr, len, access)
    }

    fn get_slices<'a>(
        &'a self,
        addr: GuestAddress,
        len: usize,
        _: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, ()>, Error> {
        Ok(self.slices(addr, len))
    }
}

#[cfg(test)]
#[path = "view_test.rs"]
mod view_test;
