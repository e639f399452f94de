//! Bits that every virtio driver and device agree on.

/// The device status (virtio 1.3 §2.1).
pub mod status {
    /// The driver has seen the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The driver can drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// The features are settled.
    pub const FEATURES_OK: u8 = 8;
    /// The driver has given up.
    pub const FAILED: u8 = 128;
}

/// Features (virtio 1.3 §6).
pub mod feature {
    /// VIRTIO_F_INDIRECT_DESC: a descriptor may name a table of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// VIRTIO_F_EVENT_IDX: either side says when it wants to be told.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// VIRTIO_F_VERSION_1: the device is as virtio 1 has it.
    pub const VERSION_1: u64 = 1 << 32;
}
