//! Restricts what a mount's files can be used for, regardless of their modes.

#![expect(unsafe_code, reason = "mount_setattr is not in rustix")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::{
    io::{Errno, Result},
    mount::MountAttrFlags,
};

/// `struct mount_attr` of linux/mount.h, in its first version.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}
const _: () = assert!(size_of::<MountAttr>() == 32);

/// Makes `tree`, the root of a cloned mount, and all mounts below it `nodev`, `nosuid` and `noexec`.
///
/// Device nodes can still be created, looked up and removed, but not opened. Set-id bits and programs remain, but no
/// process that sees the files through these mounts executes them.
///
/// # Errors
/// ENOSYS before Linux 5.12; as mount_setattr(2).
pub(super) fn forbid_devices_and_programs(tree: impl AsFd) -> Result<()> {
    let set = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let attributes = MountAttr { attr_set: set.bits().into(), attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY:
    // 1. The path is a constant with its NUL.
    // 2. `attributes` has the layout of the kernel's structure and the size that is passed. It is only read, and the
    //    kernel keeps no pointer to it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
