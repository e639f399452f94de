//! Numbers of Linux's system calls that messages carry, as on x86-64.
//!
//! FUSE passes them on unchanged, so driver and server must agree on them.

/// Flags of open(2): mask of the access mode, which is one of the next three.
pub const O_ACCMODE: u32 = 0o3;
/// For reading.
pub const O_RDONLY: u32 = 0;
/// For writing.
pub const O_WRONLY: u32 = 0o1;
/// For reading and writing.
pub const O_RDWR: u32 = 0o2;
/// Create the file if it does not exist.
pub const O_CREAT: u32 = 0o100;
/// With `O_CREAT`: fail if the file exists.
pub const O_EXCL: u32 = 0o200;
/// Do not become the controlling terminal.
pub const O_NOCTTY: u32 = 0o400;
/// Truncate the file to a length of 0.
pub const O_TRUNC: u32 = 0o1_000;
/// Write at the end of the file.
pub const O_APPEND: u32 = 0o2_000;
/// Each write is durable when it returns; a part of `O_SYNC` too.
pub const O_DSYNC: u32 = 0o10_000;
/// Bypass the page cache.
pub const O_DIRECT: u32 = 0o40_000;
/// Fail unless it is a directory.
pub const O_DIRECTORY: u32 = 0o200_000;
/// Do not follow a symbolic link in the last component.
pub const O_NOFOLLOW: u32 = 0o400_000;
/// Do not update the access time.
pub const O_NOATIME: u32 = 0o1_000_000;

/// Mask of the file type in a mode.
pub const S_IFMT: u32 = 0o170_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Set-group-id.
pub const S_ISGID: u32 = 0o2_000;
/// Sticky: only owners remove names from the directory.
pub const S_ISVTX: u32 = 0o1_000;

/// The new name must not exist (renameat2(2)).
pub const RENAME_NOREPLACE: u32 = 1;
/// Exchange the names (renameat2(2)).
pub const RENAME_EXCHANGE: u32 = 2;

/// The next data at or after an offset (lseek(2)).
pub const SEEK_DATA: u32 = 3;
/// The next hole at or after an offset (lseek(2)).
pub const SEEK_HOLE: u32 = 4;

/// A shared lock (fcntl(2)).
pub const F_RDLCK: u32 = 0;
/// An exclusive lock (fcntl(2)).
pub const F_WRLCK: u32 = 1;
/// No lock, or unlock (fcntl(2)).
pub const F_UNLCK: u32 = 2;

/// Remove a range and move what follows it forward (fallocate(2)).
pub const FALLOC_FL_COLLAPSE_RANGE: u32 = 0x08;
/// Insert a range and move what follows it backward (fallocate(2)).
pub const FALLOC_FL_INSERT_RANGE: u32 = 0x20;

/// The attribute must not exist (setxattr(2)).
pub const XATTR_CREATE: u32 = 1;
/// The attribute must exist (setxattr(2)).
pub const XATTR_REPLACE: u32 = 2;

/// In the number of an ioctl: the kernel reads the argument, as for all requests that set something (`_IOC_WRITE`).
pub const IOC_WRITE: u32 = 1 << 30;
