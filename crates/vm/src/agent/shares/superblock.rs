//! Whether the kernel still has the superblock of a device number: ustat(2), which finds it however it is held, also by
//! an open file of a mount that was detached. No file system shows that of virtio-fs.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a system call that no library wraps"))]

use std::io;

/// Returns whether a file system with this device number is mounted, or was and is still in use. Asks its daemon.
///
/// # Errors
///
/// Returns an error of the kind `Unsupported` on machines whose kernels have no such system call.
#[cfg(target_arch = "x86_64")]
pub(super) fn exists(major: u32, minor: u32) -> io::Result<bool> {
    // As the kernel's `new_encode_dev`.
    let device = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
    let mut found = [0_u64; 8];
    // SAFETY: the call writes a `struct ustat` of 32 bytes to `found`, which has 64 and lives until after the call. It
    // keeps no pointer, and the device number is a plain value.
    match unsafe { libc::syscall(libc::SYS_ustat, libc::c_ulong::from(device), found.as_mut_ptr()) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn exists(_major: u32, _minor: u32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_mounted_file_system_is_there_and_a_number_of_none_is_not() {
        let device = std::fs::metadata("/proc").unwrap().dev();
        assert!(exists(libc::major(device), libc::minor(device)).unwrap());
        assert!(!exists(0, 0xfffff).unwrap());
    }
}
