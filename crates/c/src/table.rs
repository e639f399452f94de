//! The functions of a kernel in C.
//!
//! The library's locks and events have no owner that could hold a table, so there is one, set by the first mount.

#![expect(unsafe_code, reason = "calls functions of C")]

use core::{
    ffi::c_void,
    hint, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use transom_guest::Errno;

/// `struct transom_platform`.
#[derive(Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the header says it")]
pub struct TransomPlatform {
    pub size: usize,
    pub context: *mut c_void,
    pub now_ns: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    pub wait: Option<unsafe extern "C" fn(*mut c_void, *const u32, u32, u64)>,
    pub wake: Option<unsafe extern "C" fn(*mut c_void, *const u32)>,
    pub yield_now: Option<unsafe extern "C" fn(*mut c_void)>,
    pub dma_alloc: Option<unsafe extern "C" fn(*mut c_void, usize, *mut u64) -> *mut c_void>,
    pub dma_free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64)>,
    pub dma_address: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> u64>,
    pub dma_contiguous_max: usize,
    pub is_single_threaded: u32,
}

/// The table, null until the first mount.
static TABLE: AtomicPtr<TransomPlatform> = AtomicPtr::new(ptr::null_mut());

/// Sets the table, for good.
///
/// Errors: EFAULT for a null pointer, EINVAL for a table of another size or without a required function, EBUSY if
/// another table is set.
///
/// # Safety
/// A pointer that is not null points to a table that never changes; its functions do what the header says, for calls
/// from any thread.
pub(crate) unsafe fn set(table: *const TransomPlatform) -> Result<(), Errno> {
    if table.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the size is the first field of every version of the table.
    if unsafe { (&raw const (*table).size).read() } != size_of::<TransomPlatform>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller promises a table, and it has this size.
    let functions = unsafe { &*table };
    let has_all = functions.now_ns.is_some()
        && functions.dma_alloc.is_some()
        && functions.dma_free.is_some()
        && functions.dma_address.is_some()
        && functions.wait.is_some() == functions.wake.is_some();
    if !has_all {
        return Err(Errno::INVAL);
    }
    match TABLE.compare_exchange(ptr::null_mut(), table.cast_mut(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(()),
        Err(other) if ptr::eq(other, table) => Ok(()),
        Err(_) => Err(Errno::BUSY),
    }
}

/// Returns the table.
pub(crate) fn table() -> &'static TransomPlatform {
    // SAFETY: the table is null, or `set` was promised that it never changes.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }.expect("a device of the table is mounted after it was set")
}

/// Lets another thread run, if the kernel wants that.
pub(crate) fn relax() {
    let table = table();
    match table.yield_now {
        // SAFETY: a function of the table, with its context.
        Some(yield_now) => unsafe { yield_now(table.context) },
        None => hint::spin_loop(),
    }
}
