//! The guest's memory as one thread reads and writes it: addresses are found without a search.
//!
//! vm-memory searches the guest's regions at each access, and a request makes about fifteen: of the ring's indices and
//! entries, of its descriptors and of its buffers. Nearly all are in the region of the access before, so
//! [`MemoryView`] looks there first.

use std::{cell::Cell, iter::FusedIterator, sync::atomic::Ordering};

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
        match self.slice(addr, len) {
            Some(slice) => Slices::One(Some(slice)),
            None => Slices::Searched(GuestMemoryBackend::get_slices(self.memory, addr, len)),
        }
    }

    /// Returns the `len` bytes at `addr`, or `None` if they are not in one piece or `len` is 0.
    pub(super) fn slice(&self, addr: GuestAddress, len: usize) -> Option<VolatileSlice<'m>> {
        self.latest.get().and_then(|region| region.slice(addr, len)).or_else(|| self.search(addr, len))
    }

    /// Returns the value at `addr`, or `None` if it is not in the guest's memory.
    pub(super) fn read<T: ByteValued>(&self, addr: GuestAddress) -> Option<T> {
        let here = self.latest.get().and_then(|region| Some(region.bytes.get_ref(region.offset(addr)?).ok()?.load()));
        here.or_else(|| self.read_obj(addr).ok())
    }

    /// Returns the integer at `addr`, which is little-endian and aligned, or `None` if it is not in the guest's memory.
    /// What the driver wrote before it is visible afterwards.
    pub(super) fn load_u16(&self, addr: GuestAddress) -> Option<u16> {
        let load = |region: Region<'_>| region.bytes.load(region.offset(addr)?, Ordering::Acquire).ok();
        let value = self.latest.get().and_then(load).or_else(|| self.load(addr, Ordering::Acquire).ok());
        value.map(u16::from_le)
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
        if len == 0 { None } else { self.bytes.subslice(self.offset(addr)?, len).ok() }
    }

    /// Returns the distance of `addr` from the region's beginning; `None` if it is before that.
    fn offset(&self, addr: GuestAddress) -> Option<usize> {
        usize::try_from(addr.0.checked_sub(self.start)?).ok()
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
