//! Backing files registered with `/dev/fuse`, to which opens are passed through.
//!
//! Unlike messages, these structures have the processor's byte order and alignment. Source:
//! `include/uapi/linux/fuse.h`.

/// `struct fuse_backing_map`
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct BackingMap {
    /// The file's descriptor.
    pub fd: i32,
    /// Zero.
    pub flags: u32,
    /// Zero.
    pub padding: u64,
}
const _: () = assert!(size_of::<BackingMap>() == 16);

/// `FUSE_DEV_IOC_BACKING_OPEN`: `_IOW(229, 1, struct fuse_backing_map)`; returns the number of the file.
pub const BACKING_OPEN: u32 = 0x4010_e501;
/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, uint32_t)`.
pub const BACKING_CLOSE: u32 = 0x4004_e502;
