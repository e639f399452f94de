//! What a library without an operating system takes from C: `aligned_alloc`, `free` and `abort`.

#![expect(unsafe_code, reason = "memory and its end come from C")]

use core::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_void,
    panic::PanicInfo,
};

unsafe extern "C" {
    fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn free(start: *mut c_void);
    fn abort() -> !;
}

/// The least alignment that every `aligned_alloc` accepts.
const ALIGNMENT_MIN: usize = size_of::<*const ()>();

#[global_allocator]
static HEAP: Heap = Heap;

struct Heap;

// SAFETY: `aligned_alloc` returns memory of the size and alignment that nobody else has until `free`.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let alignment = layout.align().max(ALIGNMENT_MIN);
        // SAFETY: the alignment is a power of two, and the size a multiple of it.
        unsafe { aligned_alloc(alignment, layout.size().next_multiple_of(alignment)) }.cast()
    }

    unsafe fn dealloc(&self, start: *mut u8, _: Layout) {
        // SAFETY: the caller promises that `alloc` returned it.
        unsafe { free(start.cast()) };
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: takes no arguments and does not return.
    unsafe { abort() }
}
