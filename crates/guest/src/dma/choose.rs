//! The choice of a device's DMA operations, made when its features are final.
//!
//! Source: virtio 1.3 §6.1 (VIRTIO_F_ACCESS_PLATFORM); Linux's `virtio_check_mem_acc_cb` refuses in the same case.

use alloc::sync::Arc;

use super::{DmaError, DmaOps};

/// VIRTIO_F_ACCESS_PLATFORM: the device accesses memory as the platform grants it, not by physical addresses.
pub const ACCESS_PLATFORM: u64 = 1 << 33;

/// The DMA operations that a platform offers for one device.
#[derive(Clone, Default)]
pub struct DmaChoice {
    /// For a device that uses physical addresses.
    pub direct: Option<Arc<dyn DmaOps>>,
    /// For a device that goes through the platform: its IOMMU, or a pool that the host may see.
    pub platform: Option<Arc<dyn DmaOps>>,
    /// Overrides the choice, whatever the device's features are.
    pub instead: Option<Arc<dyn DmaOps>>,
    /// The host must not see memory except through the platform.
    pub is_memory_private: bool,
}

impl DmaChoice {
    /// Uses the same operations for every device.
    pub fn always(ops: Arc<dyn DmaOps>) -> Self {
        Self { instead: Some(ops), ..Self::default() }
    }

    /// Returns the operations for a device with these features.
    ///
    /// Errors: [`DmaError::PrivateMemory`] for a device that would bypass the platform's protection,
    /// [`DmaError::Unmappable`] if the platform has no operations of the kind.
    pub fn choose(&self, features: u64) -> Result<Arc<dyn DmaOps>, DmaError> {
        let chosen = match (&self.instead, features & ACCESS_PLATFORM != 0) {
            (Some(instead), _) => Some(instead),
            (None, true) => self.platform.as_ref(),
            (None, false) if self.is_memory_private => return Err(DmaError::PrivateMemory),
            (None, false) => self.direct.as_ref(),
        };
        chosen.cloned().ok_or(DmaError::Unmappable)
    }
}
