//! VIRTIO_F_ACCESS_PLATFORM: the guest's driver asks its platform which memory the device can reach, as it does for a
//! device behind an IOMMU, or on a machine whose memory the host must not see.
//!
//! The addresses are still physical ones. A front end that negotiates the feature *with the back end* translates them
//! and sends the translations (VHOST_USER_IOTLB_MSG), which nothing here understands; QEMU does so only if the machine
//! has an IOMMU. See decisions 32 and 42.

use std::sync::atomic::{AtomicBool, Ordering};

use virtio_bindings::bindings::virtio_config::VIRTIO_F_ACCESS_PLATFORM;

const FEATURE: u64 = 1 << VIRTIO_F_ACCESS_PLATFORM;

/// Whether the feature is offered to the front end.
///
/// Front ends that pass on only what they were told to (QEMU's `iommu_platform=on`) ask for the features once more
/// after the protocol features. User Mode Linux asks once, and passes on what it gets to a kernel that has no such
/// platform.
#[derive(Debug)]
pub(super) struct AccessPlatform {
    /// The device has a window, or a version table for QEMU: its device for those passes on everything.
    is_withheld: bool,
    has_asked: AtomicBool,
}

impl AccessPlatform {
    pub(super) fn new(is_withheld: bool) -> Self {
        Self { is_withheld, has_asked: AtomicBool::new(false) }
    }

    /// The front end has asked for the protocol features.
    pub(super) fn protocol_features_were_read(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Returns the feature, if it is offered.
    pub(super) fn offered(&self) -> u64 {
        if self.has_asked.load(Ordering::Relaxed) && !self.is_withheld { FEATURE } else { 0 }
    }

    /// Explains why the queues will not start, if `acked` has the feature.
    pub(super) fn check(acked: u64) {
        if acked & FEATURE != 0 {
            tracing::error!(
                "the machine has an IOMMU, whose addresses this daemon cannot translate: remove `iommu_platform=on` \
                 from the device, which then bypasses the IOMMU, or remove the IOMMU from the machine"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_is_offered_to_those_who_ask_twice_unless_there_is_a_window() {
        let device = AccessPlatform::new(false);
        assert_eq!(device.offered(), 0);
        device.protocol_features_were_read();
        assert_eq!(device.offered(), 1 << 33);
        let device = AccessPlatform::new(true);
        device.protocol_features_were_read();
        assert_eq!(device.offered(), 0);
    }
}
