//! Open files and directories.

#![expect(unsafe_code, reason = "functions of a C interface")]

use alloc::boxed::Box;
use core::{
    ffi::{c_char, c_int, c_void},
    ptr,
};

use transom_guest::{Errno, fs::OpenOptions};

use crate::{
    pointers::{bytes, bytes_mut, count, path, reference, status, store, take},
    share::{TransomAttr, TransomDir, TransomEntry, TransomFile, TransomFs},
};

/// See `transom.h`.
///
/// # Safety
/// `fs` is null or a mounted file system, `name` null or a string, `file` null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_open(
    fs: *const TransomFs,
    name: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut TransomFile,
) -> c_int {
    let open = || {
        // SAFETY: as the caller promises, here and below.
        let (fs, name) = unsafe { (reference(fs)?, path(name)?) };
        // SAFETY: as above. Before the file is created, so that a null pointer changes nothing.
        unsafe { store(file, ptr::null_mut()) }?;
        let opened = fs.0.open(name, &OpenOptions::of_flags(flags).mode(mode))?;
        // SAFETY: as above.
        unsafe { store(file, Box::into_raw(Box::new(TransomFile(opened)))) }
    };
    status(open())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file, `buffer` null or `len` bytes that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_read(file: *const TransomFile, offset: u64, buffer: *mut c_void, len: usize) -> i64 {
    // SAFETY: as the caller promises.
    count((|| unsafe { reference(file)?.0.read(offset, bytes_mut(buffer.cast(), len)?) })())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file, `buffer` null or `len` bytes that nobody writes to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_write(
    file: *const TransomFile,
    offset: u64,
    buffer: *const c_void,
    len: usize,
) -> i64 {
    // SAFETY: as the caller promises.
    count((|| unsafe { reference(file)?.0.write(offset, bytes(buffer.cast(), len)?) })())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file, `attr` null or room for attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_fstat(file: *const TransomFile, attr: *mut TransomAttr) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { store(attr, TransomAttr::from(&reference(file)?.0.stat()?)) })())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_truncate(file: *const TransomFile, size: u64) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(file)?.0.truncate(size) })())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_fsync(file: *const TransomFile) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(file)?.0.sync() })())
}

/// See `transom.h`.
///
/// # Safety
/// `file` is null or an open file, which nobody uses during this call or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_close(file: *mut TransomFile) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { take(file)?.0.close() })())
}

/// See `transom.h`.
///
/// # Safety
/// `fs` is null or a mounted file system, `name` null or a string, `dir` null or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_opendir(
    fs: *const TransomFs,
    name: *const c_char,
    dir: *mut *mut TransomDir,
) -> c_int {
    let open = || {
        // SAFETY: as the caller promises, here and below.
        let (fs, name) = unsafe { (reference(fs)?, path(name)?) };
        // SAFETY: as above.
        unsafe { store(dir, ptr::null_mut()) }?;
        let entries = fs.0.opendir(name)?;
        // SAFETY: as above.
        unsafe { store(dir, Box::into_raw(Box::new(TransomDir(entries)))) }
    };
    status(open())
}

/// See `transom.h`.
///
/// # Safety
/// `dir` is null or an open directory that nobody else uses, `entry` null or room for an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_readdir(dir: *mut TransomDir, entry: *mut TransomEntry) -> c_int {
    let read = || -> Result<c_int, Errno> {
        if entry.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: as the caller promises, here and below.
        let dir = unsafe { dir.as_mut() }.ok_or(Errno::FAULT)?;
        for next in &mut dir.0 {
            // A name that is too long for every other function is left out.
            if let Some(next) = TransomEntry::new(&next?) {
                // SAFETY: as above.
                unsafe { store(entry, next) }?;
                return Ok(1);
            }
        }
        Ok(0)
    };
    read().unwrap_or_else(|error| -error.raw())
}

/// See `transom.h`.
///
/// # Safety
/// `dir` is null or an open directory, which nobody uses during this call or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_closedir(dir: *mut TransomDir) {
    // SAFETY: as the caller promises. A null pointer is no error here, as for free(3).
    drop(unsafe { take(dir) });
}
