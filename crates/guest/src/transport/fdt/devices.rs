//! The virtio-mmio devices of a device tree.

use super::{
    Fdt, FdtError, MmioDevice,
    nodes::{Walk, line, locate},
};

/// The name that virtio-mmio devices are compatible with (virtio 1.3, section 4.2.1).
const COMPATIBLE: &[u8] = b"virtio,mmio";

/// Iterates over the devices of a tree. Ends after an error.
#[derive(Debug, Clone)]
pub struct Devices<'a> {
    walk: Walk<'a>,
    is_over: bool,
}

impl<'a> Devices<'a> {
    pub(super) fn new(tree: Fdt<'a>) -> Self {
        Self { walk: Walk::new(tree), is_over: false }
    }

    fn advance(&mut self) -> Result<Option<MmioDevice>, FdtError> {
        while let Some((node, above)) = self.walk.next()? {
            if let Some((address, len_bytes)) = locate(node, above).filter(|_| node.is_compatible(COMPATIBLE)) {
                return Ok(Some(MmioDevice { address, len_bytes, interrupt: node.interrupts.and_then(line) }));
            }
        }
        Ok(None)
    }
}

impl Iterator for Devices<'_> {
    type Item = Result<MmioDevice, FdtError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let found = self.advance().transpose();
        self.is_over = !matches!(found, Some(Ok(_)));
        found
    }
}
