//! Copies to and from mapped files, which end early where a fault cannot be served.

#![expect(unsafe_code, reason = "copies by address, with instructions that the fault handler knows")]

use core::ptr::NonNull;

use transom_guest::Errno;

// Each architecture has these in its `copy_bytes.rs`.
unsafe extern "C" {
    /// Copies `len` bytes, upwards; returns how many are left, or a few more.
    fn copy_bytes(to: *mut u8, from: *const u8, len: usize) -> usize;
    /// Where the instructions begin that may fault for good, and where they end: what is there returns what is left.
    fn copy_begin();
    fn copy_end();
}

/// Returns where to continue after a fault at the instruction `at` that cannot be served, if it is a copy's.
pub(super) fn continuation(at: usize) -> Option<usize> {
    let [begin, end] = [copy_begin as *const () as usize, copy_end as *const () as usize];
    (begin..end).contains(&at).then_some(end)
}

/// Copies from an address at which a file is mapped.
///
/// # Errors
/// EFAULT where the file has no page; `bytes` may be partly filled.
pub(super) fn load(from: usize, bytes: &mut [u8]) -> Result<(), Errno> {
    // SAFETY:
    // 1. The caller lends `bytes`.
    // 2. The source is at addresses where nothing but files is mapped (`mapping` checks that it is within a mapping),
    //    so no Rust reference points there; a fault that cannot be served ends the copy.
    let left = unsafe { copy_bytes(bytes.as_mut_ptr(), from as *const u8, bytes.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::FAULT) }
}

/// Copies to an address at which a file is mapped. Errors: as for [`load`]; a part may have been stored.
pub(super) fn store(to: usize, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: as in `load`, with source and target exchanged.
    let left = unsafe { copy_bytes(to as *mut u8, bytes.as_ptr(), bytes.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::FAULT) }
}

/// Copies a part of a page, from its beginning.
///
/// # Safety
/// `to` is the address of a page that nobody else uses, and of the one at `from`, `len_bytes` stay readable meanwhile.
pub(super) unsafe fn page(to: usize, from: NonNull<u8>, len_bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { copy_bytes(to as *mut u8, from.as_ptr(), len_bytes) };
}
