//! Single pages of memory, for page tables and private copies.

#![expect(unsafe_code, reason = "allocates by layout")]

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;

const PAGE: Layout = match Layout::from_size_align(4096, 4096) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

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
