//! Pages of memory, for page tables, private copies and holes.

#![expect(unsafe_code, reason = "allocates by layout")]

use alloc::alloc::{alloc_zeroed, dealloc};
use core::{
    alloc::Layout,
    sync::atomic::{AtomicUsize, Ordering},
};

use transom_guest::dax::RANGE_LEN;

use super::platform::PAGE_LEN;

const PAGE: Layout = match Layout::from_size_align(PAGE_LEN as usize, PAGE_LEN as usize) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

const HUGE: Layout = match Layout::from_size_align(RANGE_LEN as usize, RANGE_LEN as usize) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// Returns the address of 2 MiB of zeros that nobody stores to, the same ones each time. They are allocated when they
/// are first needed, and kept.
pub(super) fn zeros() -> Option<usize> {
    static ZEROS: AtomicUsize = AtomicUsize::new(0);
    let known = ZEROS.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(HUGE) } as usize;
    if start == 0 {
        return None;
    }
    let other = ZEROS.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed).err();
    if other.is_some() {
        // SAFETY: just allocated with this layout, and known to nobody.
        unsafe { dealloc(start as *mut u8, HUGE) };
    }
    Some(other.unwrap_or(start))
}

/// Returns the address of a new page of zeros.
pub(super) fn new() -> Option<usize> {
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(PAGE) };
    (!start.is_null()).then_some(start as usize)
}

/// Frees a page.
///
/// # Safety
/// [`new`] has returned this address, and nothing refers to the page any more.
pub(super) unsafe fn free(address: usize) {
    // SAFETY: `new` used this layout; the rest is the caller's promise.
    unsafe { dealloc(address as *mut u8, PAGE) };
}
