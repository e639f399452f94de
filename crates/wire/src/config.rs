//! The virtio-fs device: identity, queues and configuration space. Source: virtio 1.3 §5.11.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// The virtio device type of a file system (§5.11.1).
pub const DEVICE_ID: u32 = 26;
/// The queue for FORGET, BATCH_FORGET and INTERRUPT (§5.11.2).
pub const QUEUE_HIPRIO: usize = 0;
/// The first request queue if VIRTIO_FS_F_NOTIFICATION is not negotiated, which Linux never does.
pub const QUEUE_FIRST_REQUEST: usize = 1;
/// VIRTIO_FS_F_NOTIFICATION (§5.11.3): queue 1 is the notification queue, and request queues begin at 2.
pub const FEATURE_NOTIFICATION: u64 = 1;
/// The notification queue, if VIRTIO_FS_F_NOTIFICATION is negotiated.
pub const QUEUE_NOTIFICATION: usize = 1;
/// Bytes of [`Config::tag`].
pub const TAG_LEN: usize = 36;

/// The configuration space (§5.11.4), without `notify_buf_size`, which exists only with VIRTIO_FS_F_NOTIFICATION.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Config {
    /// The name by which the guest mounts the share: UTF-8, padded with NUL, not terminated when it fills the field.
    pub tag: [u8; TAG_LEN],
    /// At least 1.
    pub num_request_queues: U32,
}
const _: () = assert!(size_of::<Config>() == 40);

/// The configuration space of a device that offers VIRTIO_FS_F_NOTIFICATION.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NotifyingConfig {
    /// What every device has.
    pub config: Config,
    /// The least length of a buffer of the notification queue, in bytes.
    pub notify_buf_size: U32,
}
const _: () = assert!(size_of::<NotifyingConfig>() == 44);
