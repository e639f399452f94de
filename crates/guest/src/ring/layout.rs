//! The layout of a split virtqueue in one piece of memory (virtio 1.3 §2.7).

use zerocopy::{Immutable, IntoBytes, little_endian::*};

use super::{RingSettings, Segment};

/// Maximum length of a ring that the driver requests, in descriptors: as many as QEMU's `queue-size` and virtiofsd
/// allow.
pub const LEN_MAX: u16 = 1024;

/// VIRTQ_DESC_F_NEXT.
pub(super) const DESC_NEXT: u16 = 1;
/// VIRTQ_DESC_F_WRITE: the device writes.
pub(super) const DESC_WRITE: u16 = 2;
/// VIRTQ_DESC_F_INDIRECT.
pub(super) const DESC_INDIRECT: u16 = 4;
/// VIRTQ_AVAIL_F_NO_INTERRUPT.
pub(super) const AVAIL_NO_INTERRUPT: u16 = 1;
/// VIRTQ_USED_F_NO_NOTIFY.
pub(super) const USED_NO_NOTIFY: u16 = 1;

/// `struct virtq_desc` (§2.7.5).
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Descriptor {
    address: U64,
    len: U32,
    flags: U16,
    next: U16,
}
const _: () = assert!(size_of::<Descriptor>() == 16);

impl Descriptor {
    pub(super) fn new(segment: &Segment, flags: u16, next: u16) -> Self {
        Self { address: segment.address.into(), len: segment.len_bytes.into(), flags: flags.into(), next: next.into() }
    }
}

/// Offsets in bytes within the memory of one ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) available: usize,
    pub(super) used: usize,
    /// The indirect tables, one for each chain, if the ring uses them.
    pub(super) tables: usize,
    pub(super) len_bytes: usize,
}

impl Layout {
    pub(super) fn new(settings: &RingSettings) -> Self {
        let len = usize::from(settings.len);
        let available = size_of::<Descriptor>() * len;
        // The used ring begins on a cache line of its own: the device writes it while the driver writes the available
        // ring.
        let used = (available + 6 + 2 * len).next_multiple_of(128);
        let tables = (used + 6 + 8 * len).next_multiple_of(128);
        let table_len_bytes = usize::from(settings.segments_max) * size_of::<Descriptor>();
        let chains = if settings.is_indirect { usize::from(settings.chains_max) } else { 0 };
        Self { available, used, tables, len_bytes: tables + chains * table_len_bytes }
    }
}
