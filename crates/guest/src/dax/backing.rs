//! A file of a volume, for those who map it: its ranges of the window.

use alloc::sync::Arc;
use core::{cell::Cell, ops::Range, ptr::NonNull};

use super::{
    Access, Pin,
    entry::PAGE_LEN,
    fault::{Backing, Lent, Place},
};
use crate::{
    Errno, Platform,
    session::Caller,
    volume::{Inode, OpenFile},
};

/// STATX_ATTR_DAX of statx(2): the file lies on memory that keeps its contents, and is accessed there directly.
const STATX_ATTR_DAX: u64 = 0x20_0000;
/// STATX_BASIC_STATS of statx(2).
const STATX_BASIC_STATS: u32 = 0x7ff;

/// An inode as what is mapped, for one fault.
pub struct FileBacking<'i, P: Platform> {
    inode: &'i Arc<Inode<P>>,
    /// The size that was returned last. A range that is lent keeps this guest from cutting the file there.
    len_bytes: Cell<u64>,
}

impl<'i, P: Platform> FileBacking<'i, P> {
    /// Takes `inode`, which has ranges.
    pub fn new(inode: &'i Arc<Inode<P>>) -> Self {
        Self { inode, len_bytes: Cell::new(0) }
    }
}

impl<P: Platform> Backing for FileBacking<'_, P> {
    type Lent<'a>
        = Pin<'a, P>
    where
        Self: 'a;

    /// What was last told is good enough if it is long enough: beyond the real end the memory has no pages.
    fn len_bytes(&self, wanted: u64) -> Result<u64, Errno> {
        let mut len_bytes = self.inode.last_size();
        if len_bytes < wanted {
            len_bytes = self.inode.ask_attributes(&Caller::default(), None)?.size.get();
        }
        self.len_bytes.set(len_bytes);
        Ok(len_bytes)
    }

    /// The answer counts even if another change has overtaken it, so that it is not kept with the inode.
    fn known_len_bytes(&self) -> u64 {
        self.len_bytes.get().max(self.inode.last_size())
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<Place<Pin<'_, P>>, Errno> {
        let access = if is_write { Access::Write } else { Access::Read };
        self.inode.pin_waiting(index, access).map(Place::Lent)
    }
}

impl<P: Platform> Lent for Pin<'_, P> {
    fn start(&self) -> NonNull<u8> {
        self.address()
    }

    /// A guest is not told whether the host's file system has settled where the bytes are.
    fn is_unstable(&self) -> bool {
        !self.is_synchronous()
    }

    fn allocate(&self, pages: Range<u64>) -> Result<(), Errno> {
        pages.into_iter().try_for_each(|page| self.touch((page * PAGE_LEN) as usize))
    }
}

impl<P: Platform> OpenFile<P> {
    /// Whether stores to the file's memory are durable once they have left the processor's caches: the host's file is
    /// on DAX storage. False where the server has no STATX, which alone tells.
    pub fn is_on_persistent_memory(&self, caller: &Caller<'_>) -> Result<bool, Errno> {
        let inode = self.inode();
        let out = inode.session().statx(caller, inode.nodeid(), Some(self.handle()), 0, STATX_BASIC_STATS)?;
        Ok(out.stat.attributes.get() & out.stat.attributes_mask.get() & STATX_ATTR_DAX != 0)
    }
}
