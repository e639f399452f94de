//! Checks a descriptor of the daemon before it is registered as a backing file.
//!
//! The kernel opens a backing file anew for each open of the mount, with the capabilities of this process, and ignores
//! the mode of the descriptor. So the daemon has to prove with the descriptor what it may do itself: otherwise a
//! sandboxed daemon could have a file written that it can only read. Only file systems are accepted that check access
//! when a file is opened, and where a write has no effect but to store data. Source: linux/fs/fuse/backing.c,
//! passthrough.c; fs/backing-file.c; fs/open.c, `do_dentry_open`.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, fstatfs},
    io::Errno,
};

use super::inodes::Access;

/// Local file systems, by `f_type` of statfs(2).
const FILE_SYSTEMS: [u32; 14] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // zfs
    0x0000_4d44, // fat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0xe0f5_e1e2, // erofs
    0x7371_7368, // squashfs
    0x0000_9660, // isofs
];

/// A file that may be registered.
#[derive(Debug)]
pub(super) struct Checked {
    /// Opened for reading only, if possible.
    pub(super) file: OwnedFd,
    /// Device and inode number.
    pub(super) identity: (u64, u64),
    /// Whether the daemon may write the file.
    pub(super) is_writable: bool,
    /// Whether `file` is open for reading only, so that it does not keep anybody from executing it.
    pub(super) is_for_reading: bool,
}

/// Why a file is not passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the daemon refused to map it: {0}")]
    Daemon(Errno),
    #[error("the daemon sent no file")]
    NoFile,
    #[error("the daemon sent something other than a regular file")]
    Kind,
    #[error("the daemon's descriptor does not prove that the daemon may access the file like this")]
    Mode,
    #[error("the file system of type {0:#x} is not supported")]
    FileSystem(u32),
    #[error("the daemon sent a different file than before")]
    Another,
    #[error("the kernel refused to register the file: {0}")]
    Kernel(Errno),
    #[error("the file cannot be examined: {0}")]
    Look(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Look(errno)
    }
}

/// Checks that opens for `access` may be passed through to `file`.
///
/// # Errors
/// Why they may not.
pub(super) fn check(file: OwnedFd, access: Access) -> Result<Checked, Refusal> {
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refusal::Kind);
    }
    let file_system = fstatfs(&file)?.f_type as u32;
    if !FILE_SYSTEMS.contains(&file_system) {
        return Err(Refusal::FileSystem(file_system));
    }
    let flags = fcntl_getfl(&file)?;
    let mode = flags & OFlags::RWMODE;
    // A file with the append-only attribute can only be opened for writing with O_APPEND.
    let is_writable = mode == OFlags::RDWR && !flags.contains(OFlags::APPEND);
    let is_readable = !flags.contains(OFlags::PATH) && (mode == OFlags::RDONLY || mode == OFlags::RDWR);
    if !is_readable || access == Access::Write && !is_writable {
        return Err(Refusal::Mode);
    }
    let identity = (stat.st_dev, stat.st_ino);
    let (file, is_for_reading) = match mode {
        OFlags::RDONLY => (file, true),
        // A file that is registered for writing cannot be executed on the host.
        _ => match for_reading(&file, identity) {
            Ok(reading) => (reading, true),
            Err(_) => (file, false),
        },
    };
    Ok(Checked { file, identity, is_writable, is_for_reading })
}

/// Opens the same file for reading.
fn for_reading(file: &OwnedFd, identity: (u64, u64)) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let reading = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = fstat(&reading)?;
    if (stat.st_dev, stat.st_ino) == identity { Ok(reading) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on one of the file systems, opened with `flags`.
    fn opened(flags: OFlags) -> OwnedFd {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    }

    #[test]
    fn a_descriptor_for_reading_allows_reading_only() {
        let checked = check(opened(OFlags::RDONLY), Access::Read).unwrap();
        assert!(!checked.is_writable && checked.is_for_reading);
        assert_eq!(check(opened(OFlags::RDONLY), Access::Write).unwrap_err(), Refusal::Mode);
    }

    #[test]
    fn a_descriptor_for_both_allows_both_and_one_for_reading_is_registered() {
        for access in [Access::Read, Access::Write] {
            let checked = check(opened(OFlags::RDWR), access).unwrap();
            assert!(checked.is_writable && checked.is_for_reading);
            assert_eq!(fcntl_getfl(&checked.file).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
            let stat = fstat(&checked.file).unwrap();
            assert_eq!((stat.st_dev, stat.st_ino), checked.identity);
        }
    }

    #[test]
    fn a_descriptor_that_does_not_prove_the_access_is_refused() {
        for flags in [OFlags::WRONLY, OFlags::PATH, OFlags::WRONLY | OFlags::APPEND] {
            assert_eq!(check(opened(flags), Access::Read).unwrap_err(), Refusal::Mode, "{flags:?}");
        }
        let appending = OFlags::RDWR | OFlags::APPEND;
        assert_eq!(check(opened(appending), Access::Write).unwrap_err(), Refusal::Mode);
        assert!(!check(opened(appending), Access::Read).unwrap().is_writable);
    }

    #[test]
    fn files_of_special_file_systems_are_refused() {
        let of = |path: &str| check(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap(), Access::Read);
        assert!(matches!(of("/proc/self/status").unwrap_err(), Refusal::FileSystem(_)));
        assert_eq!(of("/dev/null").unwrap_err(), Refusal::Kind);
        assert_eq!(of("/").unwrap_err(), Refusal::Kind);
    }
}
