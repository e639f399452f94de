//! [`FuseDevices`]: through which descriptor each worker's replies go.
//!
//! Lock: the list's, held for a moment with nothing under it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::fuse_device::FuseDevice;

/// The descriptors of the workers of one connection, by worker; none after its end. Lock: held for a moment with
/// nothing under it.
#[derive(Debug, Default)]
pub(super) struct FuseDevices(Mutex<Vec<Arc<FuseDevice>>>);

impl FuseDevices {
    /// Sets the descriptors, before the workers run.
    pub(super) fn set(&self, devices: Vec<Arc<FuseDevice>>) {
        *self.0.lock() = devices;
    }

    /// Returns the descriptor of `worker`, until [`Self::clear`].
    pub(super) fn get(&self, worker: usize) -> Option<Arc<FuseDevice>> {
        self.0.lock().get(worker).cloned()
    }

    /// Releases all descriptors.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
