//! Regions of the device's memory: the DAX window, in which the guest maps ranges of files, and the version table.

/// The id of the window's shared-memory region, the device's first (virtio 1.3 §5.11.4).
pub const WINDOW_ID: u8 = 0;

/// The id of the region with the version table of a coherence group, from its beginning. The guest may only read it.
pub const VERSIONS_ID: u8 = 1;

/// Bytes of one range, the unit in which Linux maps files (`FUSE_DAX_SZ`), and of a huge page on x86-64.
pub const RANGE_LEN: u64 = 2 << 20;
