//! Memory of a device's operations that frees itself.

use alloc::sync::Arc;

use super::{Direction, DmaMemory, DmaOps};

/// Memory that the device accesses without a copy, freed when it is dropped.
pub struct DmaBuffer {
    /// Absent only during drop.
    memory: Option<DmaMemory>,
    ops: Arc<dyn DmaOps>,
}

impl DmaBuffer {
    /// Allocates `len_bytes`, zeroed.
    pub fn new(ops: &Arc<dyn DmaOps>, len_bytes: usize) -> Result<Self, super::DmaError> {
        Ok(Self { memory: Some(ops.allocate(len_bytes)?), ops: Arc::clone(ops) })
    }

    /// Allocates `len_bytes`, zeroed, for data that one side has at a time.
    pub fn for_data(ops: &Arc<dyn DmaOps>, len_bytes: usize) -> Result<Self, super::DmaError> {
        Ok(Self { memory: Some(ops.allocate_data(len_bytes)?), ops: Arc::clone(ops) })
    }

    /// Returns whether `ops` have allocated it.
    pub(crate) fn is_of(&self, ops: &dyn DmaOps) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.ops), ops)
    }

    /// Hands a part of memory for data to the device: see [`DmaOps::sync_for_device`].
    pub(crate) fn sync_for_device(&self, offset: usize, len_bytes: usize, direction: Direction) {
        self.ops.sync_for_device(self, offset, len_bytes, direction);
    }

    /// Takes a part that the device has written back: see [`DmaOps::sync_for_cpu`].
    pub(crate) fn sync_for_cpu(&self, offset: usize, len_bytes: usize) {
        if len_bytes > 0 {
            self.ops.sync_for_cpu(self, offset, len_bytes);
        }
    }
}

impl core::ops::Deref for DmaBuffer {
    type Target = DmaMemory;

    fn deref(&self) -> &DmaMemory {
        self.memory.as_ref().expect("the memory is there until drop")
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.ops.free(memory);
        }
    }
}
