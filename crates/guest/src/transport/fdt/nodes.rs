//! The structure of a device tree: nodes within nodes, and the properties that say where a device is.

use super::{Fdt, FdtError, word};

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

/// The sizes of numbers on a bus, in words of 4 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells {
    pub(super) address: u32,
    pub(super) size: u32,
}

/// A node whose end has been reached, or whose children are being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    /// Sizes for its children.
    pub(super) cells: Cells,
    /// Words of an interrupt, if it is a controller.
    pub(super) interrupt_cells: u32,
    /// How its children's addresses are seen from the bus that it is on: absent if not at all.
    pub(super) ranges: Option<&'a [u8]>,
    pub(super) reg: Option<&'a [u8]>,
    pub(super) interrupts: Option<&'a [u8]>,
    /// How its children's interrupts are connected, and which parts of their places count.
    pub(super) interrupt_map: Option<&'a [u8]>,
    pub(super) interrupt_map_mask: Option<&'a [u8]>,
    /// The number by which others refer to it.
    pub(super) phandle: Option<u32>,
    compatible: &'a [u8],
    pub(super) is_disabled: bool,
}

impl Node<'_> {
    const NEW: Self = Self {
        cells: CELLS,
        interrupt_cells: 0,
        ranges: None,
        reg: None,
        interrupts: None,
        interrupt_map: None,
        interrupt_map_mask: None,
        phandle: None,
        compatible: &[],
        is_disabled: false,
    };

    /// Returns whether this name is among those that it is compatible with.
    pub(super) fn is_compatible(&self, wanted: &[u8]) -> bool {
        self.compatible.split(|&byte| byte == 0).any(|name| name == wanted)
    }
}

/// Visits the nodes of a tree, each after its children.
#[derive(Debug, Clone)]
pub(super) struct Walk<'a> {
    tree: Fdt<'a>,
    at: usize,
    /// The open nodes, the root first.
    nodes: [Node<'a>; DEPTH_MAX],
    depth: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: Fdt<'a>) -> Self {
        Self { tree, at: 0, nodes: [Node::NEW; DEPTH_MAX], depth: 0 }
    }

    /// Returns the next node that has no end before, and the nodes that it is in, the root first.
    pub(super) fn next(&mut self) -> Result<Option<(&Node<'a>, &[Node<'a>])>, FdtError> {
        loop {
            match self.take_word()? {
                BEGIN_NODE => self.begin()?,
                PROPERTY => self.property()?,
                END_NODE => {
                    self.depth = self.depth.checked_sub(1).ok_or(FdtError::Broken("more nodes end than begin"))?;
                    return Ok(self.nodes.get(..=self.depth).and_then(<[_]>::split_last));
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
            node.compatible = value;
        } else if is(b"status") {
            node.is_disabled = !matches!(value, b"okay\0" | b"ok\0");
        } else if is(b"phandle") {
            node.phandle = word(value, 0);
        } else if is(b"interrupt-map") {
            node.interrupt_map = Some(value);
        } else if is(b"interrupt-map-mask") {
            node.interrupt_map_mask = Some(value);
        } else if is(b"#interrupt-cells") {
            node.interrupt_cells = word(value, 0).unwrap_or(u32::MAX);
        } else if is(b"#address-cells") {
            node.cells.address = word(value, 0).unwrap_or(u32::MAX);
        } else if is(b"#size-cells") {
            node.cells.size = word(value, 0).unwrap_or(u32::MAX);
        }
        Ok(())
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

/// Returns where `node`, which is within the nodes `above`, has its first registers, as the processor sees them:
/// address and length, which is above 0 and does not overflow. `None` if it is disabled, or on a bus that the processor
/// does not reach.
pub(super) fn locate(node: &Node<'_>, above: &[Node<'_>]) -> Option<(u64, u64)> {
    let (parent, buses) = above.split_last()?;
    if node.is_disabled || above.iter().any(|node| node.is_disabled) {
        return None;
    }
    let mut reg = node.reg?;
    let mut address = take(&mut reg, parent.cells.address)?;
    let len_bytes = take(&mut reg, parent.cells.size).filter(|&len_bytes| len_bytes > 0)?;
    let mut bus = parent;
    for outer in buses.iter().rev() {
        address = translate(bus, outer.cells.address, address, len_bytes)?;
        bus = outer;
    }
    address.checked_add(len_bytes)?;
    Some((address, len_bytes))
}

/// Returns which line an interrupt is, from its words: three on a GIC, of which the first is the kind; otherwise the
/// first one.
pub(super) fn line(interrupt: &[u8]) -> Option<u32> {
    word(interrupt, if interrupt.len() >= 12 { 4 } else { 0 })
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
pub(super) fn take(bytes: &mut &[u8], cells: u32) -> Option<u64> {
    let (high, low) = match cells {
        1 => (0, word(bytes, 0)?),
        2 => (word(bytes, 0)?, word(bytes, 4)?),
        _ => return None,
    };
    *bytes = bytes.get(cells as usize * 4..)?;
    Some(u64::from(high) << 32 | u64::from(low))
}
