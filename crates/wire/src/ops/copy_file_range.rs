//! COPY_FILE_RANGE, whose reply is [`WriteOut`](super::write::WriteOut), and COPY_FILE_RANGE_64.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of either (`fuse_copy_file_range_in`); the header's nodeid is the source.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CopyFileRangeIn {
    /// The open source.
    pub fh_in: U64,
    /// In bytes.
    pub off_in: U64,
    /// The target.
    pub nodeid_out: U64,
    /// The open target.
    pub fh_out: U64,
    /// In bytes.
    pub off_out: U64,
    /// In bytes.
    pub len: U64,
    /// Zero.
    pub flags: U64,
}
const _: () = assert!(size_of::<CopyFileRangeIn>() == 56);

impl CopyFileRangeIn {
    /// Returns the arguments with a length that fits the 32-bit reply of COPY_FILE_RANGE: a whole number of pages,
    /// which keeps the next request aligned.
    pub fn within_32_bits(self) -> Self {
        Self { len: self.len.get().min(u64::from(!0xfff_u32)).into(), ..self }
    }
}

/// Reply to COPY_FILE_RANGE_64 (`fuse_copy_file_range_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CopyFileRangeOut {
    /// In bytes.
    pub bytes_copied: U64,
}
const _: () = assert!(size_of::<CopyFileRangeOut>() == 8);
