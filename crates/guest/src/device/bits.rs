//! Bit values of virtio that drivers and devices share.

/// The device status (virtio 1.3 §2.1).
pub mod status {
    /// The driver has seen the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The driver can drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// The features are negotiated.
    pub const FEATURES_OK: u8 = 8;
    /// The driver has given up.
    pub const FAILED: u8 = 128;
}

/// Features (virtio 1.3 §6).
pub mod feature {
    /// VIRTIO_FS_F_NOTIFICATION: the device has a notification queue.
    pub const NOTIFICATION: u64 = transom_wire::config::FEATURE_NOTIFICATION;
    /// VIRTIO_F_INDIRECT_DESC: a descriptor may name a table of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// VIRTIO_F_EVENT_IDX: each side states when it wants to be notified.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// VIRTIO_F_VERSION_1: the device conforms to virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
    /// VIRTIO_F_ORDER_PLATFORM: the device is hardware, which sees memory in the platform's order.
    pub const ORDER_PLATFORM: u64 = 1 << 36;
}
