//! The descriptors of a chain, read from the table in the guest's memory (virtio 1.3 §2.7.5).

use virtio_queue::desc::{RawDescriptor, split::Descriptor};
use vm_memory::GuestAddress;

use super::view::MemoryView;

/// Bytes of a descriptor.
const DESCRIPTOR_LEN: u64 = 16;

/// The descriptors of the chain that begins at a known head. The crate's own walk begins at the available ring, whose
/// entry of a chain that another daemon has taken may be another's by now, and finds the table anew for each of them.
pub(super) struct Walk<'v, 'm> {
    view: &'v MemoryView<'m>,
    table: GuestAddress,
    size: u16,
    next: Option<u16>,
    /// How many descriptors may follow, so that a loop ends.
    left: u16,
    is_indirect: bool,
}

impl<'v, 'm> Walk<'v, 'm> {
    /// Begins at the descriptor `head` of a table of `size` descriptors.
    pub(super) fn new(view: &'v MemoryView<'m>, table: GuestAddress, size: u16, head: u16) -> Self {
        Self { view, table, size, next: Some(head), left: size, is_indirect: false }
    }
    /// Enters the table to which `descriptor` refers. Returns `None` if it is not one.
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let len = u64::from(descriptor.len());
        if self.is_indirect || len % DESCRIPTOR_LEN != 0 {
            return None;
        }
        self.size = u16::try_from(len / DESCRIPTOR_LEN).ok()?;
        (self.table, self.left, self.next, self.is_indirect) = (descriptor.addr(), self.size, Some(0), true);
        Some(())
    }
}

impl Iterator for Walk<'_, '_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        loop {
            let index = self.next.take().filter(|&index| index < self.size)?;
            self.left = self.left.checked_sub(1)?;
            let at = self.table.0.checked_add(u64::from(index) * DESCRIPTOR_LEN)?;
            let descriptor = Descriptor::from(self.view.read::<RawDescriptor>(GuestAddress(at))?);
            if descriptor.refers_to_indirect_table() {
                self.enter(descriptor)?;
                continue;
            }
            self.next = descriptor.has_next().then(|| descriptor.next());
            return Some(descriptor);
        }
    }
}
