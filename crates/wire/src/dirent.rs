//! Directory entries as READDIR and READDIRPLUS lay them out.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::{attr::EntryOut, limits::LISTED_NAME_LEN_MAX};

/// Begins an entry of READDIR; the name follows, padded to 8 bytes (`fuse_dirent`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dirent {
    /// The entry's inode number.
    pub ino: U64,
    /// Position of the stream after this entry.
    pub off: U64,
    /// Bytes of the name.
    pub namelen: U32,
    /// The file type as in `d_type`.
    pub type_: U32,
}
const _: () = assert!(size_of::<Dirent>() == 24);

/// Begins an entry of READDIRPLUS (`fuse_direntplus`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirentPlus {
    /// The reply of LOOKUP; a nodeid of 0 means that nothing was looked up.
    pub entry: EntryOut,
    /// The entry itself.
    pub dirent: Dirent,
}
const _: () = assert!(size_of::<DirentPlus>() == 152);

/// Returns whether `name` may stand in an entry: 1 to 1024 bytes without `/` and NUL, also `.` and `..`.
pub fn is_listed_name(name: &[u8]) -> bool {
    (1..=LISTED_NAME_LEN_MAX).contains(&name.len()) && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Returns the number of bytes of an entry with its padded name.
pub const fn padded_len(header_len: usize, name_len: usize) -> usize {
    (header_len + name_len).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_name_has_up_to_1024_bytes() {
        for name in [&b"a"[..], b".", b"..", &[0xff; 256], &[b'x'; 1024]] {
            assert!(is_listed_name(name));
        }
        for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 1025]] {
            assert!(!is_listed_name(name));
        }
    }

    #[test]
    fn entries_are_padded_to_eight_bytes() {
        assert_eq!(padded_len(size_of::<Dirent>(), 1), 32);
        assert_eq!(padded_len(size_of::<Dirent>(), 8), 32);
        assert_eq!(padded_len(size_of::<DirentPlus>(), 9), 168);
    }
}
