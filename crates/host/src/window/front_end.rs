//! Capabilities of front ends: one row for each known one.

use super::RANGE_LEN;

/// Limits and properties of a front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEnd {
    /// Maximum number of simultaneous mappings.
    pub mappings_max: u64,
    /// Its reply to SHMEM_MAP may arrive before the guest sees the mapping: wait for a second request.
    pub needs_barrier: bool,
    /// It may announce memory regions one by one (CONFIGURE_MEM_SLOTS) while there are mappings.
    pub allows_memory_slots: bool,
    /// The guest cannot write through a mapping without the flag for writing.
    pub maps_read_only: bool,
    /// It maps a range even if only its beginning lies within the file.
    pub maps_beyond_end: bool,
    /// A device reset ends all mappings without a request from us.
    pub unmaps_at_reset: bool,
    /// It serves SHMEM_MAP before the guest's driver has started the device.
    pub maps_before_start: bool,
    /// It needs a read-only descriptor if the guest only reads. It maps nothing itself, so a writable descriptor can
    /// replace that one without a gap.
    pub opens_as_asked: bool,
}

impl FrontEnd {
    /// QEMU 11.1. With CONFIGURE_MEM_SLOTS it aborts at 512 mappings and crashes at a reset. Without, the cost of a
    /// new mapping grows with the number of mappings. A request for a mapping crashes it while the device is not
    /// started, when its vhost device has no virtio device.
    pub const QEMU: Self = Self {
        mappings_max: 512,
        needs_barrier: true,
        allows_memory_slots: false,
        maps_read_only: false,
        maps_beyond_end: false,
        unmaps_at_reset: true,
        maps_before_start: false,
        opens_as_asked: false,
    };

    /// crosvm maps into one reservation: a mapping costs little, and only its own request ends it.
    pub const CROSVM: Self = Self {
        mappings_max: 1 << 15,
        needs_barrier: false,
        allows_memory_slots: true,
        maps_read_only: true,
        maps_beyond_end: true,
        unmaps_at_reset: false,
        maps_before_start: true,
        opens_as_asked: false,
    };

    /// Alioth also maps into one reservation.
    pub const ALIOTH: Self = Self { unmaps_at_reset: true, ..Self::CROSVM };

    /// `transom mount` passes the descriptors to the kernel, as backing files of a FUSE mount.
    pub const PASSTHROUGH: Self = Self { opens_as_asked: true, ..Self::ALIOTH };

    /// Only what the specification guarantees: no more mappings than QEMU supports, and none past the end of a file.
    pub const GENERIC: Self = Self { maps_read_only: true, ..Self::QEMU };

    /// Safe with every known front end.
    pub const AUTO: Self = Self::QEMU;

    /// Returns the maximum length of the window in bytes, so that no guest can request more mappings than the front
    /// end supports.
    pub const fn window_len_max(&self) -> u64 {
        self.mappings_max * RANGE_LEN
    }
}
