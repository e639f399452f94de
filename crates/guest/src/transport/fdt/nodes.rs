//! The structure of a device tree: nodes within nodes, and the properties that say where a device is.

use super::{Fdt, FdtError, MmioDevice, word};

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;
const END: u32 = 9;

/// Maximum number of nodes within each other. Trees of real machines have fewer than ten.
const DEPTH_MAX: usize = 16;

/// Maximum number of a bus's ranges that are searched, so that the time does not grow with their number times that of
/// the devices. PCI host bridges have the most, four.
const RANGES_MAX: usize = 64;

/// Words of an address and of a length where the bus does not say (specification, section 2.3.5).
const CELLS: Cells = Cells { address: 2, size: 1 };

/// The name that virtio-mmio devices are compatible with (virtio 1.3, section 4.2.1).
const COMPATIBLE: &[u8] = b"virtio,mmio";

/// The sizes of numbers on a bus, in words of 4 bytes.
#[derive(Debug, Clone, Copy)]
struct Cells {
    address: u32,
    size: u32,
}

/// A node whose end has not been reached.
#[derive(Debug, Clone, Copy)]
struct Node<'a> {
    /// Sizes for its children.
    cells: Cells,
    /// How its children's addresses are seen from the bus that it is on: absent if not at all.
    ranges: Option<&'a [u8]>,
    reg: Option<&'a [u8]>,
    interrupts: Option<&'a [u8]>,
    is_virtio: bool,
    is_disabled: bool,
}

impl Node<'_> {
    const NEW: Self =
        Self { cells: CELLS, ranges: None, reg: None, interrupts: None, is_virtio: false, is_disabled: false };
}

/// Iterates over the devices of a tree. Ends after an error.
#[derive(Debug, Clone)]
pub struct Devices<'a> {
    tree: Fdt<'a>,
    at: usize,
    /// The open nodes, the root first.
    nodes: [Node<'a>; DEPTH_MAX],
    depth: usize,
    is_over: bool,
}

impl<'a> Devices<'a> {
    pub(super) fn new(tree: Fdt<'a>) -> Self {
        Self { tree, at: 0, nodes: [Node::NEW; DEPTH_MAX], depth: 0, is_over: false }
    }

    /// Follows the structure to the end of the next device's node.
    fn advance(&mut self) -> Result<Option<MmioDevice>, FdtError> {
        loop {
            match self.take_word()? {
                BEGIN_NODE => self.begin()?,
                PROPERTY => self.property()?,
                END_NODE => {
                    if let Some(device) = self.end()? {
                        return Ok(Some(device));
                    }
                }
                NOTHING => {}
                END if self.depth == 0 => return Ok(None),
                _ => return Err(FdtError::Broken("an unknown or misplaced token")),
            }
        }
    }

    fn begin(&mut self) -> Result<(), FdtError> {
        let place = self.nodes.get_mut(self.depth).ok_or(FdtError::Broken("more than 16 nodes within each other"))?;
        *place = Node::NEW;
        self.depth += 1;
        let rest = self.tree.structure.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == 0).ok_or(FdtError::Broken("a name does not end"))?;
        self.at += len + 1;
        self.align();
        Ok(())
    }

    fn property(&mut self) -> Result<(), FdtError> {
        let (len, name_at) = (self.take_word()? as usize, self.take_word()? as usize);
        let value = self.tree.structure.get(self.at..).and_then(|rest| rest.get(..len));
        let value = value.ok_or(FdtError::Broken("a property exceeds the structure"))?;
        self.at += len;
        self.align();
        let name = self.tree.strings.get(name_at..).ok_or(FdtError::Broken("a name lies outside the strings"))?;
        let node = self.depth.checked_sub(1).and_then(|depth| self.nodes.get_mut(depth));
        let node = node.ok_or(FdtError::Broken("a property outside of nodes"))?;
        let is = |wanted: &[u8]| name.starts_with(wanted) && name.get(wanted.len()) == Some(&0);
        if is(b"reg") {
            node.reg = Some(value);
        } else if is(b"ranges") {
            node.ranges = Some(value);
        } else if is(b"interrupts") {
            node.interrupts = Some(value);
        } else if is(b"compatible") {
            node.is_virtio = value.split(|&byte| byte == 0).any(|name| name == COMPATIBLE);
        } else if is(b"status") {
            node.is_disabled = !matches!(value, b"okay\0" | b"ok\0");
        } else if is(b"#address-cells") {
            node.cells.address = word(value, 0).unwrap_or(u32::MAX);
        } else if is(b"#size-cells") {
            node.cells.size = word(value, 0).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Ends the innermost node; returns its device.
    fn end(&mut self) -> Result<Option<MmioDevice>, FdtError> {
        self.depth = self.depth.checked_sub(1).ok_or(FdtError::Broken("more nodes end than begin"))?;
        let Some((node, above)) = self.nodes.get(..=self.depth).and_then(<[_]>::split_last) else { return Ok(None) };
        if !node.is_virtio || node.is_disabled || above.iter().any(|node| node.is_disabled) {
            return Ok(None);
        }
        Ok(locate(node, above))
    }

    fn take_word(&mut self) -> Result<u32, FdtError> {
        let word = word(self.tree.structure, self.at).ok_or(FdtError::Broken("its structure does not end"))?;
        self.at += 4;
        Ok(word)
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(4);
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

/// Returns where `node`, which is within the nodes `above`, has its registers, as the processor sees them.
fn locate(node: &Node<'_>, above: &[Node<'_>]) -> Option<MmioDevice> {
    let (parent, buses) = above.split_last()?;
    let mut reg = node.reg?;
    let mut address = take(&mut reg, parent.cells.address)?;
    let len_bytes = take(&mut reg, parent.cells.size).filter(|&len_bytes| len_bytes > 0)?;
    let mut bus = parent;
    for outer in buses.iter().rev() {
        address = translate(bus, outer.cells.address, address, len_bytes)?;
        bus = outer;
    }
    address.checked_add(len_bytes)?;
    // Three words on a GIC, of which the first is the kind; otherwise the first is the number.
    let interrupt = node.interrupts.and_then(|value| word(value, if value.len() >= 12 { 4 } else { 0 }));
    Some(MmioDevice { address, len_bytes, interrupt })
}

/// Returns an address of `bus`'s children as the bus outside sees it, whose addresses have `outer_cells` words.
fn translate(bus: &Node<'_>, outer_cells: u32, address: u64, len_bytes: u64) -> Option<u64> {
    let mut ranges = bus.ranges?;
    if ranges.is_empty() {
        return Some(address);
    }
    for _ in 0..RANGES_MAX {
        let child = take(&mut ranges, bus.cells.address)?;
        let parent = take(&mut ranges, outer_cells)?;
        let size = take(&mut ranges, bus.cells.size)?;
        let offset = address.checked_sub(child).filter(|&offset| offset < size && len_bytes <= size - offset);
        if let Some(offset) = offset {
            return parent.checked_add(offset);
        }
    }
    None
}

/// Takes a number of `cells` words, of which there may be one or two: a longer one has no meaning here.
fn take(bytes: &mut &[u8], cells: u32) -> Option<u64> {
    let (high, low) = match cells {
        1 => (0, word(bytes, 0)?),
        2 => (word(bytes, 0)?, word(bytes, 4)?),
        _ => return None,
    };
    *bytes = bytes.get(cells as usize * 4..)?;
    Some(u64::from(high) << 32 | u64::from(low))
}
