//! Limits on messages, checked before anything is allocated or looped over.

/// Bytes of a file name (`NAME_MAX` of Linux); a longer one is answered with ENAMETOOLONG.
pub const NAME_LEN_MAX: usize = 255;

/// Bytes of a name in a directory's entries (`FUSE_NAME_MAX` of Linux). A file system may list names longer than
/// [`NAME_LEN_MAX`], which no other request can carry.
pub const LISTED_NAME_LEN_MAX: usize = 1024;

/// Bytes of a symbolic link's target, with no terminating NUL (`PATH_MAX` - 1 of Linux).
pub const SYMLINK_LEN_MAX: usize = 4095;

/// Bytes of an extended attribute's value (`XATTR_SIZE_MAX` of Linux).
pub const XATTR_VALUE_LEN_MAX: usize = 65536;

/// Bytes of an extended attribute's name (`XATTR_NAME_MAX` of Linux).
pub const XATTR_NAME_LEN_MAX: usize = 255;

/// Bytes of a list of extended attributes' names (`XATTR_LIST_MAX` of Linux).
pub const XATTR_LIST_LEN_MAX: usize = 65536;

/// Bytes of data in one READ or WRITE: 256 pages of 4 KiB, the most that Linux sends without a raised
/// `fs.fuse.max_pages_limit`.
pub const DATA_LEN_MAX: u32 = 1 << 20;

/// Bytes of one message apart from the data of a WRITE: the largest is a SETXATTR with its header, name and value, or a
/// CREATE with a security context.
pub const MESSAGE_LEN_MAX: usize = 2 * XATTR_VALUE_LEN_MAX;

/// Entries of one BATCH_FORGET: what fits into [`MESSAGE_LEN_MAX`].
pub const FORGET_COUNT_MAX: usize = MESSAGE_LEN_MAX / 16;
