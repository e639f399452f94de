//! The share of a daemon, for processes on Linux.

#![expect(unsafe_code, reason = "functions of a C interface")]

use std::{
    ffi::{OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt as _,
};

use transom_guest::{Errno, cache::CacheOptions, fs::Fs};
use transom_user::share::{Share, ShareError};

use crate::{
    pointers::{Message, path, status, store},
    share::TransomFs,
};

/// See `transom.h`.
///
/// # Safety
/// Each pointer is null or points to what the header says: `socket` to a string, `fs` to room for a pointer, `message`
/// to `message_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn transom_connect(
    socket: *const c_char,
    fs: *mut *mut TransomFs,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    let connect = || {
        // SAFETY: as the caller promises, here and below.
        let mut message = unsafe { Message::new(message, message_len) }?;
        // SAFETY: as above.
        let socket = unsafe { path(socket) }?;
        // SAFETY: as above. Before the share is connected, so that a null pointer changes nothing.
        unsafe { store(fs, core::ptr::null_mut()) }?;
        let share = mount(socket).map_err(|error| {
            message.explain(&error);
            errno(&error)
        })?;
        // SAFETY: as above.
        unsafe { store(fs, Box::into_raw(Box::new(TransomFs(Box::new(share))))) }
    };
    status(connect())
}

fn mount(socket: &[u8]) -> Result<Fs<transom_user::platform::Process>, ShareError> {
    let share = Share::builder().socket(OsStr::from_bytes(socket)).connect()?;
    Ok(Fs::mount(share.session(Default::default())?, CacheOptions::default()))
}

fn errno(error: &ShareError) -> Errno {
    match error {
        ShareError::Socket { source, .. } => source.raw_os_error().map_or(Errno::IO, Errno::from_raw),
        ShareError::Arena(_) => Errno::NOMEM,
        _ => Errno::NODEV,
    }
}
