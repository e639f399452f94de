//! Mappings that the process can do without, kept for when it has too many.
//!
//! Linux makes no mapping, and splits none, once a process has `vm.max_map_count` of them: 65,530. To take pages of a
//! file away may take one or two more, and has to be possible always.
//!
//! Lock: `KEPT`, held under that of a view's chunks while they are changed.

#![expect(unsafe_code, reason = "makes and ends mappings of its own")]

use std::ptr;

use parking_lot::{Mutex, MutexGuard};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use transom_guest::dax::entry::PAGE_LEN;

/// One for each page: more than a hole in each of a few mappings makes.
const COUNT: usize = 16;
const PAGE: usize = PAGE_LEN as usize;

/// Where they begin, if there are any.
static KEPT: Mutex<Option<usize>> = Mutex::new(None);

/// Room for a few more mappings, until it is dropped.
pub(super) struct Room(MutexGuard<'static, Option<usize>>);

/// Keeps the mappings, where there is room for them.
pub(super) fn keep() {
    keep_in(&mut KEPT.lock());
}

impl Room {
    /// Waits for another who has it.
    pub(super) fn make() -> Self {
        let mut kept = KEPT.lock();
        if let Some(start) = kept.take() {
            // SAFETY: mapped by `keep_in`, used by nobody.
            let ended = unsafe { munmap(ptr::with_exposed_provenance_mut(start), COUNT * PAGE) };
            if ended.is_err() {
                *kept = Some(start);
            }
        }
        Self(kept)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        keep_in(&mut self.0);
    }
}

fn keep_in(kept: &mut Option<usize>) {
    if kept.is_some() {
        return;
    }
    let (flags, len) = (MapFlags::PRIVATE | MapFlags::NORESERVE, COUNT * PAGE);
    // SAFETY: a new mapping at a place of the kernel's choice, that nothing can be done with.
    let Ok(start) = (unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }) else { return };
    // Neighbours that differ are mappings of their own.
    let mut others = (1..COUNT).step_by(2).map(|page| start.wrapping_byte_add(page * PAGE));
    // SAFETY: pages of the new mapping.
    let are_split = others.all(|page| unsafe { mprotect(page, PAGE, MprotectFlags::READ) }.is_ok());
    if are_split {
        *kept = Some(start.expose_provenance());
    } else {
        // SAFETY: the new mapping, used by nobody. Where it fails, it stays, and harms nobody.
        let _ = unsafe { munmap(start, len) };
    }
}
