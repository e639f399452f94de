//! Extensions after the arguments of MKNOD, MKDIR, SYMLINK, CREATE and TMPFILE: security contexts and the
//! supplementary group.
//!
//! An extension begins with [`ExtHeader`] and is padded to 8 bytes. Its `type_` is either the number of security
//! contexts (up to 31) or [`EXT_GROUPS`]. Source: `fuse_ext_header` and FUSE minor 38.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::limits::{XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX};

/// Begins an extension (`fuse_ext_header`); a block of security contexts without SUPP_GROUP begins alike
/// (`fuse_secctx_header`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtHeader {
    /// Bytes of the extension, header and padding included.
    pub size: U32,
    /// The number of security contexts, or [`EXT_GROUPS`].
    pub type_: U32,
}
const _: () = assert!(size_of::<ExtHeader>() == 8);

/// `type_` up to here counts security contexts (`FUSE_MAX_NR_SECCTX`).
pub const SECCTX_COUNT_MAX: u32 = 31;
/// The extension holds supplementary groups (`FUSE_EXT_GROUPS`).
pub const EXT_GROUPS: u32 = 32;

/// Begins a security context; its name, NUL-terminated, and its value follow (`fuse_secctx`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Secctx {
    /// Bytes of the value.
    pub size: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<Secctx>() == 8);

/// An extended attribute for a new file: its name, without NUL, and its value.
pub type SecurityContext<'a> = (&'a [u8], &'a [u8]);

/// The extensions of a request that creates a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    /// The caller's supplementary group that the new file's directory requires.
    pub supp_group: Option<u32>,
    /// The security context to set on the new file.
    pub secctx: Option<SecurityContext<'a>>,
}

/// The extensions are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadExtension;

impl<'a> Extensions<'a> {
    /// Parses the bytes after the arguments; refuses unknown extensions.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Self, BadExtension> {
        let mut parsed = Self::default();
        while !bytes.is_empty() {
            let (header, _) = ExtHeader::read_from_prefix(bytes).map_err(|_| BadExtension)?;
            let len = header.size.get() as usize;
            if len < size_of::<ExtHeader>() || len > bytes.len() {
                return Err(BadExtension);
            }
            let body = &bytes[size_of::<ExtHeader>()..len];
            match header.type_.get() {
                0 => {}
                EXT_GROUPS => parsed.supp_group = parse_groups(body)?,
                count @ 1..=SECCTX_COUNT_MAX => parsed.secctx = parse_secctx(body, count)?,
                _ => return Err(BadExtension),
            }
            bytes = &bytes[len.next_multiple_of(8).min(bytes.len())..];
        }
        Ok(parsed)
    }
}

/// Linux sends at most one group: that of the parent directory, if the caller is a member.
fn parse_groups(body: &[u8]) -> Result<Option<u32>, BadExtension> {
    let (count, rest) = U32::read_from_prefix(body).map_err(|_| BadExtension)?;
    match count.get() {
        0 => Ok(None),
        1 => U32::read_from_prefix(rest).map(|(gid, _)| Some(gid.get())).map_err(|_| BadExtension),
        _ => Err(BadExtension),
    }
}

/// Several contexts come only with stacked security modules; the first is the one that an attribute can hold.
fn parse_secctx(body: &[u8], count: u32) -> Result<Option<SecurityContext<'_>>, BadExtension> {
    if count != 1 {
        return Err(BadExtension);
    }
    let (head, rest) = Secctx::read_from_prefix(body).map_err(|_| BadExtension)?;
    let value_len = head.size.get() as usize;
    if value_len == 0 {
        return Ok(None);
    }
    let name_len = rest.iter().position(|&byte| byte == 0).ok_or(BadExtension)?;
    if name_len == 0 || name_len > XATTR_NAME_LEN_MAX || value_len > XATTR_VALUE_LEN_MAX {
        return Err(BadExtension);
    }
    let value = rest.get(name_len + 1..name_len + 1 + value_len).ok_or(BadExtension)?;
    Ok(Some((&rest[..name_len], value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_a_context_are_read() {
        let mut bytes = [0u8; 56];
        bytes[0] = 32; // extension of 32 bytes, one context
        bytes[4] = 1;
        bytes[8] = 5; // five bytes of value
        bytes[16..18].copy_from_slice(b"s\0");
        bytes[18..23].copy_from_slice(b"label");
        bytes[32] = 16;
        bytes[36] = 32;
        bytes[40] = 1;
        bytes[44] = 100;
        let parsed = Extensions::parse(&bytes[..48]).unwrap();
        assert_eq!(parsed, Extensions { supp_group: Some(100), secctx: Some((b"s", b"label")) });
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for size in [0u8, 7, 9, 255] {
            let bytes = [size, 0, 0, 0, 1, 0, 0, 0];
            assert_eq!(Extensions::parse(&bytes), Err(BadExtension), "size {size}");
        }
        assert_eq!(Extensions::parse(&[1]), Err(BadExtension));
    }
}
