//! Inode attributes: `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`. Rustix has the older flags.
//!
//! All of them need a descriptor that is not `O_PATH`.

#![expect(unsafe_code, reason = "rustix relies on the caller that an ioctl's number and its structure agree")]

use std::os::fd::AsFd;

use rustix::{
    io::Errno,
    ioctl::{Getter, Opcode, Setter, ioctl, opcode},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use rustix::fs::{IFlags, ioctl_getflags as get_flags, ioctl_setflags as set_flags};

/// Attributes of an inode (`struct fsxattr`), in the layout of the host and of FUSE_IOCTL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FsXattr {
    /// `FS_XFLAG_*`.
    pub xflags: u32,
    /// Extent size hint, in bytes.
    pub extsize: u32,
    /// Number of extents.
    pub nextents: u32,
    /// Project id for quotas.
    pub projid: u32,
    /// Extent size hint for copy-on-write, in bytes.
    pub cowextsize: u32,
    /// Zero.
    pub pad: [u8; 8],
}
const _: () = assert!(size_of::<FsXattr>() == 28);

const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// Returns the attributes of the inode open as `fd`. Errors: ENOTTY or EOPNOTSUPP if the file system has none.
pub fn get_fsxattr(fd: impl AsFd) -> Result<FsXattr, Errno> {
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr`. FsXattr has its layout, and every bit pattern of it is
    // valid.
    unsafe { ioctl(fd, Getter::<FSGETXATTR, FsXattr>::new()) }
}

/// Sets the attributes of the inode open as `fd`.
pub fn set_fsxattr(fd: impl AsFd, attributes: FsXattr) -> Result<(), Errno> {
    // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr`. FsXattr has its layout, without padding.
    unsafe { ioctl(fd, Setter::<FSSETXATTR, FsXattr>::new(attributes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_linux_fs_h() {
        assert_eq!(FSGETXATTR, 0x801c_581f);
        assert_eq!(FSSETXATTR, 0x401c_5820);
    }

    #[test]
    fn a_flag_set_by_one_call_is_seen_by_both() {
        let file = tempfile::tempfile().unwrap();
        let before = match (get_flags(&file), get_fsxattr(&file)) {
            (Ok(_), Ok(attributes)) => attributes,
            other => return println!("SKIPPED: no inode attributes here: {other:?}"),
        };
        const FS_XFLAG_NOATIME: u32 = 0x40;
        set_fsxattr(&file, FsXattr { xflags: before.xflags | FS_XFLAG_NOATIME, ..before }).unwrap();
        assert!(get_flags(&file).unwrap().contains(IFlags::NOATIME));
        set_flags(&file, get_flags(&file).unwrap() - IFlags::NOATIME).unwrap();
        assert_eq!(get_fsxattr(&file).unwrap().xflags, before.xflags);
    }
}
