//! Counts heap allocations of a whole process, for tests of paths that must not allocate.
//!
//! A test binary makes [`CountingAllocator`] its global allocator and calls [`exempt_this_thread`] on the threads that
//! drive the code under test. [`count`] then counts what all other threads allocate, except the process's first, where
//! the test harness waits and reports. Freeing memory is no allocation; [`live_bytes`] takes it into account.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    backtrace::Backtrace,
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use rustix::{process::getpid, thread::gettid};

/// The system's allocator, with a count of its allocations.
pub struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that counted threads have allocated, minus those that counted threads have freed.
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
/// Set while the next counted allocation should store its backtrace in [`TRACE`].
static IS_TRACING: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// `None` until the thread's first allocation. Needs no destructor and no lazy initialization, so that the
    /// allocator may use it at any time.
    static IS_EXEMPT: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Returns the number of allocations so far by all threads that are not exempt.
pub fn count() -> u64 {
    ALLOCATIONS.load(SeqCst)
}

/// Returns the number of bytes that threads which are not exempt have allocated and not freed. Memory should be freed
/// by a thread that is exempt if and only if the one that allocated it was.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.load(SeqCst)
}

/// Leaves allocations of this thread out of the count from now on.
pub fn exempt_this_thread() {
    IS_EXEMPT.set(Some(true));
}

/// Runs `work` with this thread exempt or not, and restores the previous state.
pub fn with_exempt<T>(is_exempt: bool, work: impl FnOnce() -> T) -> T {
    let before = IS_EXEMPT.replace(Some(is_exempt));
    let outcome = work();
    IS_EXEMPT.set(before);
    outcome
}

/// Makes the next counted allocation store its backtrace for [`take_trace`].
pub fn trace_next() {
    IS_TRACING.store(true, SeqCst);
}

/// Takes the backtrace of the first allocation after [`trace_next`], if there was one.
pub fn take_trace() -> Option<String> {
    IS_TRACING.store(false, SeqCst);
    TRACE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn is_exempt() -> bool {
    IS_EXEMPT.get().unwrap_or_else(|| {
        let is_first = gettid() == getpid();
        IS_EXEMPT.set(Some(is_first));
        is_first
    })
}

fn note(new_len: usize, old_len: usize) {
    if is_exempt() {
        return;
    }
    ALLOCATIONS.fetch_add(1, SeqCst);
    LIVE_BYTES.fetch_add(new_len as i64 - old_len as i64, SeqCst);
    if IS_TRACING.swap(false, SeqCst) {
        with_exempt(true, || {
            let trace = Backtrace::force_capture().to_string();
            *TRACE.lock().unwrap_or_else(PoisonError::into_inner) = Some(trace);
        });
    }
}

// SAFETY: every method passes its arguments to the system's allocator, which upholds the contract; counting does not
// touch the memory that is handed out.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        note(new_len, layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(start, layout, new_len) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if !is_exempt() {
            LIVE_BYTES.fetch_sub(layout.size() as i64, SeqCst);
        }
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(start, layout) }
    }
}
