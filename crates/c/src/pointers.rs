//! Checks of what C passes, and results as C returns them.

#![expect(unsafe_code, reason = "C passes pointers, for which the caller vouches")]

use alloc::boxed::Box;
use core::{
    ffi::{c_char, c_int},
    fmt::{self, Write as _},
    slice,
};

use transom_guest::Errno;

/// Paths have fewer bytes, as on Linux.
const PATH_LEN_MAX: usize = 4096;

/// Returns a reference to what is at `pointer`, or EFAULT for a null pointer.
///
/// # Safety
/// A pointer that is not null points to a value that lives, and that nobody writes to, for as long as `'a`.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Errno::FAULT)
}

/// Returns the bytes of a string without its NUL.
///
/// # Safety
/// A pointer that is not null points to bytes that end with a NUL, and that nobody writes to, for as long as `'a`.
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a [u8], Errno> {
    if pointer.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: every byte up to the NUL may be read, and no byte after it is.
    let len = (0..PATH_LEN_MAX).find(|&at| unsafe { *pointer.add(at) } == 0).ok_or(Errno::NAMETOOLONG)?;
    // SAFETY: these bytes were just read.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), len) })
}

/// Returns the bytes of a buffer; a null pointer is a buffer without bytes.
///
/// # Safety
/// A pointer that is not null points to `len` bytes that nobody writes to for as long as `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Errno> {
    match (len, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::FAULT),
        _ if len > isize::MAX as usize => Err(Errno::INVAL),
        // SAFETY: as the caller promises; the length is possible.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// Does the same as [`bytes`] for a buffer to be written.
///
/// # Safety
/// A pointer that is not null points to `len` bytes that nobody else uses for as long as `'a`.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Errno> {
    match (len, pointer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Errno::FAULT),
        _ if len > isize::MAX as usize => Err(Errno::INVAL),
        // SAFETY: as the caller promises; the length is possible.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer, len) }),
    }
}

/// Stores a value where C wants it, or returns EFAULT for a null pointer.
///
/// # Safety
/// A pointer that is not null points to room for a `T`.
pub(crate) unsafe fn store<T>(pointer: *mut T, value: T) -> Result<(), Errno> {
    if pointer.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: as the caller promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Takes back what [`Box::into_raw`] gave to C.
///
/// # Safety
/// A pointer that is not null was returned by [`Box::into_raw`], and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Result<Box<T>, Errno> {
    if pointer.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// Returns 0, or a negative errno.
pub(crate) fn status(result: Result<(), Errno>) -> c_int {
    result.map_or_else(|error| -error.raw(), |()| 0)
}

/// Returns a number of bytes, or a negative errno.
pub(crate) fn count(result: Result<usize, Errno>) -> i64 {
    result.map_or_else(|error| -i64::from(error.raw()), |count| count as i64)
}

/// Room for a message, which is cut to fit and ends with a NUL.
pub(crate) struct Message<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Message<'a> {
    /// # Safety
    /// As for [`bytes_mut`].
    pub(crate) unsafe fn new(pointer: *mut c_char, len: usize) -> Result<Self, Errno> {
        // SAFETY: as the caller promises.
        let room = unsafe { bytes_mut(pointer.cast(), len) }?;
        let mut message = Self { room, len: 0 };
        message.end();
        Ok(message)
    }

    /// Writes an error and its causes.
    pub(crate) fn explain(&mut self, error: &dyn core::error::Error) {
        // A message that does not fit is cut, which is not an error.
        let _ = write!(self, "{error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(self, ": {error}");
            cause = error.source();
        }
    }

    fn end(&mut self) {
        if let Some(end) = self.room.get_mut(self.len) {
            *end = 0;
        }
    }
}

impl fmt::Write for Message<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.room.len().saturating_sub(1).saturating_sub(self.len);
        let mut fits = text.len().min(room);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        if let Some(place) = self.room.get_mut(self.len..self.len + fits) {
            place.copy_from_slice(&text.as_bytes()[..fits]);
            self.len += fits;
        }
        self.end();
        Ok(())
    }
}
