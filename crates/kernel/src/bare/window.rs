//! A device's window, as memory of the kernel.
//!
//! The addresses at which devices are mapped to themselves are uncached on some machines, so a window is mapped once
//! more, as memory, by entries of 2 MiB at a fixed distance. It stays there.

#![expect(unsafe_code, reason = "says where the window is")]

use core::ptr::NonNull;

use transom_guest::{
    dax::{MappedWindow, RANGE_LEN, entry::Order},
    transport::ShmRegion,
};

use super::{
    Failure,
    entry::Entry,
    tables::{self, CHANGING},
    walk::WINDOWS,
};

/// Maps a window.
pub(super) fn map(region: ShmRegion) -> Result<MappedWindow, Failure> {
    let ShmRegion { address, len_bytes } = region;
    let is_aligned = address.is_multiple_of(RANGE_LEN) && len_bytes.is_multiple_of(RANGE_LEN);
    let end = address.checked_add(len_bytes).filter(|&end| end <= WINDOWS.len() as u64 && is_aligned);
    let end = end.ok_or("the window has no place of 2 MiB units below 1 TiB")?;
    let _changing = CHANGING.lock();
    for physical in (address..end).step_by(RANGE_LEN as usize) {
        // Nobody collects marks here, and a store must not fault on a processor that sets none.
        let entry = Entry { order: Order::Huge, physical, is_writable: true, is_copy: false, is_dirty: true };
        tables::set(WINDOWS.start + physical as usize, entry).ok_or("no memory for page tables")?;
    }
    let start = NonNull::new((WINDOWS.start + address as usize) as *mut u8).ok_or("a window at the end of memory")?;
    // SAFETY: the addresses have just been mapped, for good, to a device's region, which is not memory of the kernel.
    Ok(unsafe { MappedWindow::new(start, len_bytes as usize) })
}

/// Returns the physical address of a byte of a window.
pub(super) fn physical(byte: NonNull<u8>) -> u64 {
    (byte.as_ptr() as usize - WINDOWS.start) as u64
}
