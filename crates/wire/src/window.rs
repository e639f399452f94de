//! The DAX window: a region of the device's memory in which the guest maps ranges of files.

/// The id of the window's shared-memory region, the device's first (virtio 1.3 §5.11.4).
pub const WINDOW_ID: u8 = 0;

/// Bytes of one range, the unit in which Linux maps files (`FUSE_DAX_SZ`), and of a huge page on x86-64.
pub const RANGE_LEN: u64 = 2 << 20;
