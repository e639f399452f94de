//! The PCI host bridge of a device tree, as a kernel without firmware finds it.
//!
//! Source: PCI Bus Binding to Open Firmware, revision 2.1, and Devicetree Specification 0.4, section 2.4.3.

use core::ops::Range;

use super::{
    Fdt, FdtError,
    nodes::{Cells, Node, Walk, line, locate, take},
    word,
};
use crate::transport::pci::Place;

/// A bridge whose functions' configuration is at addresses, 4 KiB for each.
const COMPATIBLE: &[u8] = b"pci-host-ecam-generic";

/// Sizes of numbers below a bridge: the first word of an address says what it is.
const CELLS: Cells = Cells { address: 3, size: 2 };
const KIND_MASK: u32 = 3 << 24;
/// Memory for registers of 32 bits, and for those of 64.
const KINDS: [u32; 2] = [2 << 24, 3 << 24];

/// Maximum number of connections that are searched. A bridge has four for each of its devices, at most 32.
const CONNECTIONS_MAX: usize = 128;

/// A host bridge.
#[derive(Debug, Clone)]
pub struct PciHost<'a> {
    tree: Fdt<'a>,
    /// The physical address of the configuration of bus 0, for [`Ecam`](crate::transport::pci::Ecam).
    pub address: u64,
    /// Its length in bytes, 1 MiB for each bus; `address + len_bytes` does not overflow.
    pub len_bytes: u64,
    /// Addresses for base address registers, those for 32 bits first, for
    /// [`FreeAddresses`](crate::transport::pci::FreeAddresses). Empty if the tree names none. Only those that are the
    /// same on the bus as for the processor.
    pub memory: [Range<u64>; 2],
    interrupt_map: &'a [u8],
    interrupt_map_mask: Option<&'a [u8]>,
}

impl<'a> PciHost<'a> {
    /// Returns the first bridge of the tree.
    pub(super) fn find(tree: Fdt<'a>) -> Result<Option<Self>, FdtError> {
        let mut walk = Walk::new(tree);
        while let Some((node, above)) = walk.next()? {
            if !node.is_compatible(COMPATIBLE) {
                continue;
            }
            if let (Some((address, len_bytes)), Some(parent)) = (locate(node, above), above.last()) {
                let memory = KINDS.map(|kind| memory(node, parent.cells.address, kind).unwrap_or(0..0));
                let (interrupt_map, interrupt_map_mask) = (node.interrupt_map.unwrap_or(&[]), node.interrupt_map_mask);
                return Ok(Some(Self { tree, address, len_bytes, memory, interrupt_map, interrupt_map_mask }));
            }
        }
        Ok(None)
    }

    /// Returns the line that a function's interrupt is connected to, as [`MmioDevice`](super::MmioDevice) has it. `pin`
    /// is 1 to 4, as the configuration has it at 0x3d. `None` if the tree does not say.
    ///
    /// # Errors
    /// The tree is broken.
    pub fn line(&self, function: Place, pin: u8) -> Result<Option<u32>, FdtError> {
        let place =
            u32::from(function.bus) << 16 | u32::from(function.device) << 11 | u32::from(function.function) << 8;
        let wanted = [place, 0, 0, pin.into()];
        let mask = |index: usize| self.interrupt_map_mask.map_or(Some(u32::MAX), |mask| word(mask, index * 4));
        let mut rest = self.interrupt_map;
        // Connections to one controller follow each other.
        let mut controller = None;
        for _ in 0..CONNECTIONS_MAX {
            let (Some(from), Some(phandle)) = (rest.get(..16), word(rest, 16)) else { break };
            let is_wanted = (0..4).all(|index| {
                let matches = |mask: u32| word(from, index * 4).map(|word| word & mask) == Some(wanted[index] & mask);
                mask(index).is_some_and(matches)
            });
            if controller.is_none_or(|(known, _)| known != phandle) {
                controller = cells_of(self.tree, phandle)?.map(|cells| (phandle, cells));
            }
            let Some((_, [address, interrupt])) = controller else { break };
            let Some(end) = address.checked_add(interrupt).and_then(|words| words.checked_mul(4)) else { break };
            let Some(to) = rest.get(20..).and_then(|to| to.get(..end as usize)) else { break };
            if is_wanted {
                return Ok(line(&to[address as usize * 4..]));
            }
            rest = &rest[20 + to.len()..];
        }
        Ok(None)
    }
}

/// Returns how many words an address and an interrupt have at the controller of this number.
fn cells_of(tree: Fdt<'_>, phandle: u32) -> Result<Option<[u32; 2]>, FdtError> {
    let mut walk = Walk::new(tree);
    while let Some((node, _)) = walk.next()? {
        if node.phandle == Some(phandle) {
            return Ok(Some([node.cells.address, node.interrupt_cells]));
        }
    }
    Ok(None)
}

/// Returns the bridge's addresses of one kind, of which the bus outside has `outer_cells` words.
fn memory(bridge: &Node<'_>, outer_cells: u32, kind: u32) -> Option<Range<u64>> {
    let mut ranges = bridge.ranges?;
    if (bridge.cells.address, bridge.cells.size) != (CELLS.address, CELLS.size) {
        return None;
    }
    loop {
        let found = word(ranges, 0)? & KIND_MASK;
        ranges = ranges.get(4..)?;
        let on_bus = take(&mut ranges, CELLS.address - 1)?;
        let address = take(&mut ranges, outer_cells)?;
        let len_bytes = take(&mut ranges, CELLS.size)?;
        if found == kind && on_bus == address {
            return Some(address..address.checked_add(len_bytes)?);
        }
    }
}
