//! What a front end can bear: one row for each that is known.

use super::RANGE_LEN;

/// What the window may be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontEnd {
    /// Mappings that may live at once.
    pub mappings_max: u64,
    /// Its answer to SHMEM_MAP may come before the guest sees the mapping: a second request has to be awaited.
    pub needs_barrier: bool,
    /// It may announce memory regions one by one (CONFIGURE_MEM_SLOTS) while there are mappings.
    pub allows_memory_slots: bool,
    /// A mapping without the flag for writing cannot be written by the guest.
    pub maps_read_only: bool,
    /// It maps a range of which only the beginning lies within the file.
    pub maps_beyond_end: bool,
    /// A reset of the device ends all mappings without a request of ours.
    pub unmaps_at_reset: bool,
    /// It wants a descriptor for reading where the guest only reads: it maps nothing, so that one for writing can take
    /// its place without a gap.
    pub opens_as_asked: bool,
}

impl FrontEnd {
    /// QEMU 11.1. With CONFIGURE_MEM_SLOTS it aborts at 512 mappings and crashes at a reset; without, each new mapping
    /// costs the more the more there are.
    pub const QEMU: Self = Self {
        mappings_max: 512,
        needs_barrier: true,
        allows_memory_slots: false,
        maps_read_only: false,
        maps_beyond_end: false,
        unmaps_at_reset: true,
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
        opens_as_asked: false,
    };

    /// Alioth maps into one reservation too.
    pub const ALIOTH: Self = Self { unmaps_at_reset: true, ..Self::CROSVM };

    /// `transom mount` hands the descriptors to the kernel, as the backing files of a FUSE mount.
    pub const PASSTHROUGH: Self = Self { opens_as_asked: true, ..Self::ALIOTH };

    /// The specification's word and nothing beyond: no promise of more mappings than QEMU bears, none for the end of a
    /// file.
    pub const GENERIC: Self = Self { maps_read_only: true, ..Self::QEMU };

    /// What is safe with every one of them.
    pub const AUTO: Self = Self::QEMU;

    /// Bytes of the largest window: no guest can ask for more mappings than the front end bears.
    pub const fn window_len_max(&self) -> u64 {
        self.mappings_max * RANGE_LEN
    }
}
