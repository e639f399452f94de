//! A kernel's table of functions, as C would write it.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ffi::c_void,
    ptr,
    sync::OnceLock,
    thread,
    time::Instant,
};

use transom_c::TransomPlatform;

/// The one table.
pub(crate) fn table() -> *const TransomPlatform {
    /// The context is a null pointer, which every thread may have.
    struct Shared(TransomPlatform);
    // SAFETY: see above; the functions may be called by any thread.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}
    static TABLE: OnceLock<Shared> = OnceLock::new();
    &raw const TABLE.get_or_init(|| Shared(copy())).0
}

pub(crate) fn copy() -> TransomPlatform {
    TransomPlatform {
        size: size_of::<TransomPlatform>(),
        context: ptr::null_mut(),
        now_ns: Some(now_ns),
        wait: None,
        wake: None,
        yield_now: Some(yield_now),
        dma_alloc: Some(dma_alloc),
        dma_free: Some(dma_free),
        dma_address: Some(dma_address),
        dma_contiguous_max: 0,
        is_single_threaded: 0,
    }
}

unsafe extern "C" fn now_ns(_: *mut c_void) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

unsafe extern "C" fn yield_now(_: *mut c_void) {
    thread::yield_now();
}

unsafe extern "C" fn dma_alloc(_: *mut c_void, len: usize, address: *mut u64) -> *mut c_void {
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout(len)) };
    // SAFETY: the library passes room for an address.
    unsafe { address.write(start.expose_provenance() as u64) };
    start.cast()
}

unsafe extern "C" fn dma_free(_: *mut c_void, start: *mut c_void, len: usize, _: u64) {
    // SAFETY: `dma_alloc` used this layout.
    unsafe { dealloc(start.cast(), layout(len)) };
}

unsafe extern "C" fn dma_address(_: *mut c_void, start: *const c_void, _: usize) -> u64 {
    start.expose_provenance() as u64
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), 4096).unwrap()
}
