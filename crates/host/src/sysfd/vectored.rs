//! File data transferred directly between a file and guest memory by `preadv2` and `pwritev2`.
//!
//! The buffers are volatile slices, to which no Rust reference is ever made: the guest may change them meanwhile. One
//! call makes one system call; [`read_full`] and [`write_full`] repeat it until everything is transferred.

#![expect(unsafe_code, reason = "system calls take the addresses of guest memory, which Rust slices cannot describe")]

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::io::{Errno, ReadWriteFlags};
use vm_memory::VolatileSlice;

use super::checked_len;

/// Maximum number of buffers in one system call (`UIO_MAXIOV` of Linux, which returns EINVAL for more).
pub const IOV_COUNT_MAX: usize = 1024;

/// Reads from `offset_bytes` of `file` into `slices` with one system call and returns the number of bytes read.
///
/// Reads less at the end of the file, if the system call stops early, or if there are more than [`IOV_COUNT_MAX`]
/// slices. With `NOWAIT`, returns EAGAIN for data that is not in the page cache; blocks on the host's file system
/// otherwise.
///
/// # Errors
///
/// EINVAL for an offset past `i64::MAX`; EFAULT if a slice is mapped past the end of its file; those of preadv2(2).
pub fn read(
    file: impl AsFd,
    slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    transfer(file.as_fd(), slices, offset_bytes, |fd, iovecs, offset| {
        // SAFETY:
        // 1. `iovecs` has `iovecs.len()` elements, at most IOV_COUNT_MAX, which fits a c_int.
        // 2. Each names the memory of a VolatileSlice that `slices` borrows until after this call, so it stays mapped
        //    and may be written; no Rust reference to that memory exists, which is what a VolatileSlice stands for.
        unsafe { libc::preadv2(fd, iovecs.as_ptr(), iovecs.len() as libc::c_int, offset, flags.bits() as libc::c_int) }
    })
}

/// Writes `slices` to `file` at `offset_bytes` with one system call and returns the number of bytes written.
///
/// Writes less if the system call stops early, or if there are more than [`IOV_COUNT_MAX`] slices. With `APPEND`,
/// writes at the end of the file. With `NOWAIT`, returns EAGAIN rather than wait.
///
/// # Errors
///
/// EINVAL for an offset past `i64::MAX`; those of pwritev2(2).
pub fn write(
    file: impl AsFd,
    slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    transfer(file.as_fd(), slices, offset_bytes, |fd, iovecs, offset| {
        // SAFETY: as in `read`; the kernel only reads the buffers, and each byte once, whatever the guest writes there.
        unsafe { libc::pwritev2(fd, iovecs.as_ptr(), iovecs.len() as libc::c_int, offset, flags.bits() as libc::c_int) }
    })
}

/// Like [`read`], repeated until `slices` are full or the file ends.
///
/// Stops at an error; if anything was read before, returns its length instead of the error.
pub fn read_full(
    file: impl AsFd,
    slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    repeat(slices, offset_bytes, |slices, offset| read(file.as_fd(), slices, offset, flags))
}

/// Like [`write()`], repeated until all of `slices` is written.
///
/// Stops at an error; if anything was written before, returns its length instead of the error.
pub fn write_full(
    file: impl AsFd,
    slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    repeat(slices, offset_bytes, |slices, offset| write(file.as_fd(), slices, offset, flags))
}

/// Calls `once` on the rest of `slices` until it transfers nothing or nothing is left.
fn repeat(
    mut slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    mut once: impl FnMut(&[VolatileSlice<'_>], u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    // Bytes of `slices[0]` that were transferred already.
    let mut skip = 0;
    while let Some((first, rest)) = slices.split_first() {
        if skip == first.len() {
            (slices, skip) = (rest, 0);
            continue;
        }
        let offset = offset_bytes.checked_add(done as u64).ok_or(Errno::INVAL)?;
        let outcome = if skip == 0 {
            once(slices, offset)
        } else {
            // A partly transferred slice is passed alone, so that the list need not be copied.
            once(&[first.offset(skip).map_err(|_| Errno::FAULT)?], offset)
        };
        let mut moved = match outcome {
            Ok(0) => break,
            Ok(moved) => moved,
            Err(Errno::INTR) => continue,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        done += moved;
        while let Some((first, rest)) = slices.split_first() {
            let left = first.len() - skip;
            if moved < left {
                skip += moved;
                break;
            }
            moved -= left;
            (slices, skip) = (rest, 0);
        }
    }
    Ok(done)
}

/// Builds the list of buffers on the stack and passes it to `call`.
fn transfer(
    file: BorrowedFd<'_>,
    slices: &[VolatileSlice<'_>],
    offset_bytes: u64,
    call: impl FnOnce(libc::c_int, &[libc::iovec], libc::off_t) -> libc::ssize_t,
) -> Result<usize, Errno> {
    // -1 would mean the file's own position.
    let offset = libc::off_t::try_from(offset_bytes).map_err(|_| Errno::INVAL)?;
    let mut room = [const { MaybeUninit::<libc::iovec>::uninit() }; IOV_COUNT_MAX];
    let count = slices.len().min(IOV_COUNT_MAX);
    for (slot, slice) in room.iter_mut().zip(slices) {
        slot.write(libc::iovec { iov_base: slice.ptr_guard_mut().as_ptr().cast(), iov_len: slice.len() });
    }
    // SAFETY: the loop above wrote the first `count` elements: both sides of the zip have at least that many.
    let iovecs = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<libc::iovec>(), count) };
    checked_len(call(file.as_raw_fd(), iovecs, offset))
}

#[cfg(test)]
#[path = "vectored_test.rs"]
mod vectored_test;
