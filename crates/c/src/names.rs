//! Names: attributes by path, and changes of names.

#![expect(unsafe_code, reason = "functions of a C interface")]

use core::ffi::{c_char, c_int};

use transom_guest::Errno;

use crate::{
    pointers::{path, reference, status, store},
    share::{TransomAttr, TransomFs},
};

/// # Safety
/// As for [`transom_stat`].
unsafe fn stat(fs: *const TransomFs, name: *const c_char, attr: *mut TransomAttr, follows: bool) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    let (fs, name) = unsafe { (reference(fs)?, path(name)?) };
    let metadata = fs.0.stat(name, follows)?;
    // SAFETY: as above.
    unsafe { store(attr, TransomAttr::from(&metadata)) }
}

/// See `transom.h`.
///
/// # Safety
/// `fs` is null or a mounted file system, `path` null or a string, `attr` null or room for attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_stat(fs: *const TransomFs, path: *const c_char, attr: *mut TransomAttr) -> c_int {
    // SAFETY: as the caller promises.
    status(unsafe { stat(fs, path, attr, true) })
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_lstat(fs: *const TransomFs, path: *const c_char, attr: *mut TransomAttr) -> c_int {
    // SAFETY: as the caller promises.
    status(unsafe { stat(fs, path, attr, false) })
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_mkdir(fs: *const TransomFs, name: *const c_char, mode: u32) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(fs)?.0.mkdir(path(name)?, mode) })())
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_rmdir(fs: *const TransomFs, name: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(fs)?.0.rmdir(path(name)?) })())
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_unlink(fs: *const TransomFs, name: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(fs)?.0.unlink(path(name)?) })())
}

/// See `transom.h`.
///
/// # Safety
/// As for [`transom_stat`], for both names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_rename(fs: *const TransomFs, from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    status((|| unsafe { reference(fs)?.0.rename(path(from)?, path(to)?) })())
}
