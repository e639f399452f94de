//! Spare mappings, released when the process has too many.
//!
//! Once a process has `vm.max_map_count` mappings (65,530), Linux neither creates nor splits one. Removing pages of a
//! file may need one or two more, and must always be possible: [`Room`] makes it so.
//!
//! Lock: `KEPT`, held under that of a view's chunks while they are changed, and while mappings are counted.

#![expect(unsafe_code, reason = "creates and removes its own mappings")]

use std::ptr;

use parking_lot::{Mutex, MutexGuard};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::platform::PAGE_LEN;

/// Number of spare mappings, one for each page: more than the holes in a few mappings need.
const COUNT: usize = 16;
const PAGE: usize = PAGE_LEN as usize;

/// Start of the spare mappings, if there are any.
static KEPT: Mutex<Option<usize>> = Mutex::new(None);

/// Room for a few more mappings, until it is dropped.
pub(super) struct Room(MutexGuard<'static, Option<usize>>);

/// Creates the spare mappings, if the process may have more.
pub(super) fn keep() {
    keep_in(&mut KEPT.lock());
}

/// Returns whether the process may have some more mappings than it has, beside the spare ones. Blocks while another
/// thread has those.
///
/// A thread that begins needs a few: its stack, one for signal handlers, and memory to allocate from. It panics where
/// the kernel refuses the one for signal handlers, which ends the process. Code that has nothing to do with this crate
/// may take them after this returns.
pub(super) fn is_left() -> bool {
    // What a `Room` has released is not left: its owner is about to use it.
    let _kept = KEPT.lock();
    let mut tried = None;
    keep_in(&mut tried);
    let is_left = tried.is_some();
    release(&mut tried);
    is_left
}

impl Room {
    /// Releases the spare mappings. Blocks while another thread has them.
    pub(super) fn make() -> Self {
        let mut kept = KEPT.lock();
        release(&mut kept);
        Self(kept)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        keep_in(&mut self.0);
    }
}

fn release(kept: &mut Option<usize>) {
    if let Some(start) = kept.take() {
        // SAFETY: mapped by `keep_in`, and used by no one.
        let ended = unsafe { munmap(ptr::with_exposed_provenance_mut(start), COUNT * PAGE) };
        if ended.is_err() {
            *kept = Some(start);
        }
    }
}

fn keep_in(kept: &mut Option<usize>) {
    if kept.is_some() {
        return;
    }
    let (flags, len) = (MapFlags::PRIVATE | MapFlags::NORESERVE, COUNT * PAGE);
    // SAFETY: the kernel chooses the address of the new mapping, which nothing can access.
    let Ok(start) = (unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }) else { return };
    // Neighbours with different protection are separate mappings.
    let mut others = (1..COUNT).step_by(2).map(|page| start.wrapping_byte_add(page * PAGE));
    // SAFETY: the pages are in the new mapping.
    let are_split = others.all(|page| unsafe { mprotect(page, PAGE, MprotectFlags::READ) }.is_ok());
    if are_split {
        *kept = Some(start.expose_provenance());
    } else {
        // SAFETY: the new mapping is used by no one. If this fails, the mapping stays, which is harmless.
        let _ = unsafe { munmap(start, len) };
    }
}
