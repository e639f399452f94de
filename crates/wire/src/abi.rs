//! Flags of system calls that travel in messages, with the values that Linux has on every architecture we serve.

/// open(2): fail if the file exists.
pub const O_EXCL: u32 = 0o200;
/// open(2): truncate the file to no bytes.
pub const O_TRUNC: u32 = 0o1000;
/// open(2): each write goes to the end of the file.
pub const O_APPEND: u32 = 0o2000;
/// fallocate(2): remove a range and move what follows it forward.
pub const FALLOC_FL_COLLAPSE_RANGE: u32 = 0x08;
/// fallocate(2): insert a range and move what follows it backward.
pub const FALLOC_FL_INSERT_RANGE: u32 = 0x20;
/// setxattr(2): fail if the attribute exists.
pub const XATTR_CREATE: u32 = 1;
/// setxattr(2): fail if the attribute does not exist.
pub const XATTR_REPLACE: u32 = 2;
/// ioctl(2): the request's number says that the kernel reads the argument, as all requests that set something do.
pub const IOC_WRITE: u32 = 1 << 30;
