//! Byte ranges over a list of the driver's buffers.

use smallvec::SmallVec;
use transom_wire::limits::DATA_LEN_MAX;
use vm_memory::VolatileSlice;

/// One of the driver's buffers; the driver may change it at any time.
pub type GuestSlice<'a> = VolatileSlice<'a>;

/// Number of buffers that a [`GuestSlices`] holds without an allocation: the data of the largest READ or WRITE in
/// pages of 4 KiB, and a margin for headers, arguments and names. If a driver uses smaller buffers, each list costs an
/// allocation.
pub const SLICES_INLINE: usize = DATA_LEN_MAX as usize / 4096 + 16;

/// A list of the driver's buffers, for the stack of the thread that serves the request. Its size is 6 KiB: pass it by
/// reference, since a move may copy all of it.
pub type GuestSlices<'a> = SmallVec<[GuestSlice<'a>; SLICES_INLINE]>;

/// Returns the total length of `slices` in bytes.
pub(crate) fn total_len(slices: &[GuestSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).fold(0, usize::saturating_add)
}

/// Appends to `part` the section of `slices` that starts at `offset` and has at most `len` bytes.
pub(super) fn range<'a>(slices: &[GuestSlice<'a>], mut offset: usize, mut len: usize, part: &mut GuestSlices<'a>) {
    for slice in slices {
        if len == 0 {
            break;
        }
        let skip = offset.min(slice.len());
        offset -= skip;
        let take = (slice.len() - skip).min(len);
        if take == 0 {
            continue;
        }
        if let Ok(piece) = slice.subslice(skip, take) {
            part.push(piece);
            len -= take;
        }
    }
}

/// Copies from `slices`, starting at byte `offset`, until `target` is full or they end; returns the number of bytes
/// copied.
pub(super) fn copy_out(slices: &[GuestSlice<'_>], mut offset: usize, target: &mut [u8]) -> usize {
    let mut copied = 0;
    for slice in slices {
        if copied == target.len() {
            break;
        }
        let skip = offset.min(slice.len());
        offset -= skip;
        if let Ok(rest) = slice.offset(skip) {
            copied += rest.copy_to(&mut target[copied..]);
        }
    }
    copied
}

/// Copies `source` into `slices`, starting at byte `offset`; returns the number of bytes copied.
pub(super) fn copy_in(slices: &[GuestSlice<'_>], mut offset: usize, source: &[u8]) -> usize {
    let mut copied = 0;
    for slice in slices {
        if copied == source.len() {
            break;
        }
        let skip = offset.min(slice.len());
        offset -= skip;
        if let Ok(rest) = slice.offset(skip) {
            let count = rest.len().min(source.len() - copied);
            rest.copy_from(&source[copied..copied + count]);
            copied += count;
        }
    }
    copied
}
