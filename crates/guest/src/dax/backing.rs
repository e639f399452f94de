//! A file of a volume as the backing of mappings: its ranges of the window.

use alloc::sync::Arc;
use core::{cell::Cell, ops::Range, ptr::NonNull};

use super::{
    Access, Pin,
    fault::{Backing, HOST_PAGE_LEN, Lent, LentPage},
};
use crate::{
    Errno, Platform,
    session::Caller,
    volume::{Inode, OpenFile},
};

/// STATX_ATTR_DAX of statx(2): the file is on persistent memory and is accessed there directly.
const STATX_ATTR_DAX: u64 = 0x20_0000;
/// STATX_BASIC_STATS of statx(2).
const STATX_BASIC_STATS: u32 = 0x7ff;

/// An inode as the backing of a mapping, for one fault.
pub struct FileBacking<'i, P: Platform> {
    inode: &'i Arc<Inode<P>>,
    /// The size that was returned last. While a range is lent, this guest cannot truncate the file below it.
    len_bytes: Cell<u64>,
}

impl<'i, P: Platform> FileBacking<'i, P> {
    /// Creates the backing of `inode`, which must have ranges.
    pub fn new(inode: &'i Arc<Inode<P>>) -> Self {
        Self { inode, len_bytes: Cell::new(0) }
    }
}

impl<P: Platform> Backing for FileBacking<'_, P> {
    type Lent<'a>
        = Pin<'a, P>
    where
        Self: 'a;

    /// The last known size suffices if it is large enough: beyond the real end the memory has no pages.
    fn len_bytes(&self, wanted: u64) -> Result<u64, Errno> {
        let mut len_bytes = self.inode.last_size();
        if len_bytes < wanted {
            len_bytes = self.inode.ask_attributes(&Caller::default(), None)?.size.get();
        }
        self.len_bytes.set(len_bytes);
        Ok(len_bytes)
    }

    /// Uses the reply even if another change has made it stale, in which case the inode does not cache it.
    fn known_len_bytes(&self) -> u64 {
        self.len_bytes.get().max(self.inode.last_size())
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<LentPage<Pin<'_, P>>, Errno> {
        let access = if is_write { Access::Write } else { Access::Read };
        self.inode.pin_waiting(index, access).map(LentPage::Lent)
    }
}

impl<P: Platform> Lent for Pin<'_, P> {
    fn start(&self) -> NonNull<u8> {
        self.address()
    }

    /// The guest cannot know whether the host's file system has committed where the bytes are stored.
    fn is_unstable(&self) -> bool {
        !self.is_synchronous()
    }

    /// Touches each page that the host may have: one of the guest's may be several of them.
    fn allocate(&self, bytes: Range<u64>) -> Result<(), Errno> {
        bytes.step_by(HOST_PAGE_LEN as usize).try_for_each(|at| self.touch(at as usize))
    }
}

impl<P: Platform> OpenFile<P> {
    /// Returns whether stores to the file's memory are durable once they have left the processor's caches, which means
    /// that the host's file is on DAX storage. Returns false if the server does not know STATX, the only way to find
    /// out.
    pub fn is_on_persistent_memory(&self, caller: &Caller<'_>) -> Result<bool, Errno> {
        let inode = self.inode();
        let out = inode.session().statx(caller, inode.nodeid(), Some(self.handle()), 0, STATX_BASIC_STATS)?;
        Ok(out.stat.attributes.get() & out.stat.attributes_mask.get() & STATX_ATTR_DAX != 0)
    }
}
