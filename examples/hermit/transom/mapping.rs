//! Files at addresses, through the window: a page fault finds the page of the file, which is entered into Hermit's page
//! tables.

#![allow(unsafe_code, reason = "files are at addresses")]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;

use align_address::Align;
use hermit_sync::InterruptTicketMutex;
use memory_addresses::VirtAddr;
use transom_guest::dax::backing::FileBacking;
use transom_guest::dax::entry::Order;
use transom_guest::dax::fault::{Fault, FaultOutcome, Intent, View};
use transom_guest::dax::mapped::Mapped;
use transom_guest::fs::{File, OpenOptions};
use transom_guest::memory::{IoSlice, IoSliceMut};

use super::memory::PAGE_LEN;
use super::pages::Pages;
use super::platform::Hermit;
use super::{SHARE, vfs};
use crate::arch::mm::virtualmem;
use crate::io;

/// Every mapping, for faults.
static MAPPINGS: InterruptTicketMutex<Vec<Arc<State>>> = InterruptTicketMutex::new(Vec::new());

/// A file of the share at addresses, from its beginning. Dropping it removes the mapping.
pub struct Mapping(Arc<State>);

struct State {
    pages: Arc<Pages>,
    mapped: Arc<Mapped<Hermit>>,
    file: File<Hermit>,
}

/// Maps `len_bytes` of a file of the share, for loads and for stores that everyone sees. Errors: ENOSYS if the share
/// has no window.
pub fn map(path: &str, len_bytes: usize) -> io::Result<Mapping> {
    let fs = SHARE.get().ok_or(io::Error::ENOENT)?;
    let options = OpenOptions::new().read(true).write(true);
    let file = fs.open(path, &options).map_err(vfs::error)?;
    let mapped = file.inode().ranges().ok_or(io::Error::ENOSYS)?.mapped();
    let len = len_bytes.max(1).align_up(PAGE_LEN);
    let start = virtualmem::allocate(len).map_err(|_| io::Error::ENOBUFS)?;
    let pages = Arc::new(Pages::new(start, len / PAGE_LEN));
    mapped.attach(Arc::clone(&pages) as Arc<dyn View>);
    let state = Arc::new(State { pages, mapped, file });
    MAPPINGS.lock().push(Arc::clone(&state));
    Ok(Mapping(state))
}

impl Mapping {
    /// Copies from `offset`, by address.
    ///
    /// Past the end of the file there are no pages: such an access ends the kernel, like any bad one. Panics if `bytes`
    /// does not lie within the mapping.
    pub fn load(&self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: nothing but the file is at these addresses, so no Rust reference points there, and others change it
        // atomically or from outside Rust.
        let from = unsafe { IoSlice::shared(self.at(offset, bytes.len()), bytes.len()) };
        from.copy_to(IoSliceMut::new(bytes));
    }

    /// Copies to `offset`, by address. Panics as [`Self::load`].
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: as in `load`.
        let to = unsafe { IoSliceMut::shared(self.at(offset, bytes.len()), bytes.len()) };
        IoSlice::new(bytes).copy_to(to);
    }

    /// Makes stores durable, as msync(2). Returns how many pages were stored to since the last time.
    pub fn sync(&self) -> io::Result<u64> {
        let mut stored = 0;
        let count = |pages: Range<u64>| {
            stored += pages.end - pages.start;
            Ok(())
        };
        self.0.mapped.write_back(0..u64::MAX, count).map_err(vfs::error)?;
        self.0.file.sync_data().map_err(vfs::error)?;
        Ok(stored)
    }

    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len);
        let pages = &self.0.pages;
        assert!(end.is_some_and(|end| end <= pages.len_bytes()), "outside of the mapping");
        NonNull::new((pages.start() + offset as u64).as_mut_ptr()).expect("a mapping is not at address 0")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let State { pages, mapped, .. } = &*self.0;
        MAPPINGS.lock().retain(|state| !Arc::ptr_eq(state, &self.0));
        pages.zap(0..u64::MAX, true);
        mapped.detach(&(Arc::clone(pages) as Arc<dyn View>));
        virtualmem::deallocate(pages.start(), pages.len_bytes());
    }
}

/// Serves a page fault. Returns false if no file has a page there.
pub(crate) fn serve_fault(address: usize, is_store: bool) -> bool {
    let address = VirtAddr::new(address as u64);
    let state = MAPPINGS.lock().iter().find(|state| state.pages.contains(address)).cloned();
    let Some(state) = state else { return false };
    let page = (address - state.pages.start()) / PAGE_LEN as u64;
    let intent = if is_store { Intent::Store } else { Intent::Load };
    let backing = FileBacking::new(state.file.inode());
    let fault = Fault { page, order: Order::Huge, intent };
    let outcome = state.mapped.fault_through(&backing, &*state.pages, fault, |_| Ok(()));
    outcome == FaultOutcome::Installed
}
