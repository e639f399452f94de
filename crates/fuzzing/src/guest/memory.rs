//! The memory that a device can access.

#![expect(unsafe_code, reason = "memory shared with a device is raw")]

use std::{
    ptr::NonNull,
    sync::{Arc, atomic::AtomicU64},
};

use transom_guest::dma::{Bounce, Direction, DmaCounts, DmaError, DmaMemory, DmaOps, Mapped, WhenFull};

use super::platform::Lone;

pub(super) const PAGE: usize = 4096;

/// Where the device finds the pool: nowhere near where the driver does.
const ADDRESS: u64 = 7 << 32;

/// All that the device reaches.
pub(super) struct Pool(Box<[AtomicU64]>);

impl Pool {
    pub(super) fn new(pages: usize) -> Arc<Self> {
        let zeroed = Box::new_zeroed_slice(pages * PAGE / 8);
        // SAFETY: atomics of the integers' size and alignment may have any value, also zero.
        Arc::new(Self(unsafe { zeroed.assume_init() }))
    }

    /// The pool as one of the two sides sees it, who drops its view before the pool.
    fn view(&self) -> DmaMemory {
        let start = NonNull::from(&*self.0).cast();
        // SAFETY: as aligned and as long as the atomics, which may be written through shared references and live as
        // long as `self`, which whoever holds a view keeps. The other view is the other side's, as with a device.
        unsafe { DmaMemory::new(start, size_of_val(&*self.0), ADDRESS) }
    }

    /// Operations that copy everything through the pool; where `is_paged`, in pieces of a page.
    pub(super) fn ops(self: &Arc<Self>, platform: Arc<Lone>, when_full: WhenFull, is_paged: bool) -> Arc<dyn DmaOps> {
        let bounce = Bounce::owning(platform, self.view(), when_full, Arc::clone(self) as Arc<dyn Send + Sync>);
        if is_paged { Arc::new(Paged(bounce)) } else { Arc::new(bounce) }
    }
}

/// The pool as the device sees it.
pub(super) struct Reach {
    memory: DmaMemory,
    _pool: Arc<Pool>,
}

impl Reach {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { memory: pool.view(), _pool: Arc::clone(pool) }
    }

    /// Where `len_bytes` at a device's address lie in the pool, if they do.
    pub(super) fn offset(&self, address: u64, len_bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(ADDRESS)?).ok()?;
        (offset.checked_add(len_bytes)? <= self.memory.len()).then_some(offset)
    }

    pub(super) fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    pub(super) fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    /// Writes what fits.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let offset = offset.min(self.memory.len());
        self.memory.write(offset, &bytes[..bytes.len().min(self.memory.len() - offset)]);
    }

    pub(super) fn fill(&self, offset: usize, len_bytes: usize, value: u8) {
        self.memory.fill(offset, len_bytes, value);
    }
}

/// A pool on a machine whose pages lie apart.
struct Paged(Bounce<Lone>);

impl DmaOps for Paged {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        self.0.allocate(len_bytes)
    }

    fn free(&self, memory: DmaMemory) {
        self.0.free(memory);
    }

    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        assert!(start.addr().get() % PAGE + len_bytes <= PAGE, "{len_bytes} bytes at {start:p} cross a page");
        // SAFETY: the caller vouches for the memory as these operations demand it, which is alike.
        unsafe { self.0.map(start, len_bytes, direction) }
    }

    unsafe fn unmap(&self, mapped: Mapped, written_bytes: usize) {
        // SAFETY: `mapped` is what `map` gave, which had it from the same operations.
        unsafe { self.0.unmap(mapped, written_bytes) }
    }

    fn mapping_len_max(&self) -> usize {
        PAGE
    }

    fn boundary(&self) -> Option<usize> {
        Some(PAGE)
    }

    fn counts(&self) -> DmaCounts {
        self.0.counts()
    }
}
