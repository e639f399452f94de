//! The driver's side of a split virtqueue, in which a test can also write any field incorrectly.

use std::sync::atomic::{Ordering, fence};

use super::ram::{Buffer, Ram};

/// Descriptor flag: the chain continues with `next` (VIRTQ_DESC_F_NEXT).
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer (VIRTQ_DESC_F_WRITE).
pub const WRITE: u16 = 2;
/// Descriptor flag: the buffer holds a table of descriptors (VIRTQ_DESC_F_INDIRECT).
pub const INDIRECT: u16 = 4;
/// Length of a descriptor in bytes.
pub const DESCRIPTOR_LEN: usize = 16;

/// A descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// Guest address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Any of [`NEXT`], [`WRITE`] and [`INDIRECT`].
    pub flags: u16,
    /// Index in the same table, if `flags` contains NEXT.
    pub next: u16,
}

impl Descriptor {
    /// Returns the descriptor as encoded in a table.
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_LEN] {
        let mut bytes = [0; DESCRIPTOR_LEN];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// The three parts of a ring in guest memory, and the driver's own indices.
pub struct Ring {
    ram: Ram,
    size: u16,
    table: Buffer,
    avail: Buffer,
    used: Buffer,
    /// Descriptors that belong to no chain.
    free: Vec<u16>,
    next_avail: u16,
    /// `next_avail` when the device was last notified, or found not to need it.
    kicked_at: u16,
    next_used: u16,
    has_event_idx: bool,
}

impl Ring {
    /// Creates a ring of `size` descriptors, which must be a power of two.
    pub fn new(ram: &Ram, size: u16, has_event_idx: bool) -> Self {
        let entries = u64::from(size);
        let zeroed = |len, align| {
            let part = ram.alloc(len, align);
            ram.write(part.addr(), &vec![0; len as usize]);
            part
        };
        Self {
            ram: ram.clone(),
            size,
            table: zeroed(DESCRIPTOR_LEN as u64 * entries, 16),
            avail: zeroed(6 + 2 * entries, 2),
            used: zeroed(6 + 8 * entries, 4),
            free: (0..size).rev().collect(),
            next_avail: 0,
            kicked_at: 0,
            next_used: 0,
            has_event_idx,
        }
    }

    /// Returns the size in descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the guest addresses of the descriptor table, the available ring and the used ring.
    pub fn addresses(&self) -> [u64; 3] {
        [self.table.addr(), self.avail.addr(), self.used.addr()]
    }

    /// Returns the number of free descriptors.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Allocates a descriptor.
    pub fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Frees descriptors.
    pub fn give_back(&mut self, indices: &[u16]) {
        self.free.extend(indices);
    }

    /// Writes a descriptor.
    pub fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        self.ram.write(self.table.addr() + u64::from(index) * DESCRIPTOR_LEN as u64, &descriptor.to_bytes());
    }

    /// Makes the chain that begins at `head` available. `head` is not checked.
    pub fn publish(&mut self, head: u16) {
        let slot = u64::from(self.next_avail % self.size);
        self.ram.store(self.avail.addr() + 4 + 2 * slot, head.to_le());
        self.next_avail = self.next_avail.wrapping_add(1);
        self.set_avail_idx(self.next_avail);
    }

    /// Writes only the index of the available ring.
    pub fn set_avail_idx(&self, index: u16) {
        self.ram.store(self.avail.addr() + 2, index.to_le());
    }

    /// Returns the correct index of the available ring.
    pub fn next_avail(&self) -> u16 {
        self.next_avail
    }

    /// Returns whether the device asked to be notified of what was published since the last call.
    pub fn needs_kick(&mut self) -> bool {
        fence(Ordering::SeqCst);
        let (old, new) = (std::mem::replace(&mut self.kicked_at, self.next_avail), self.next_avail);
        if self.has_event_idx {
            let event = u16::from_le(self.ram.load(self.used.addr() + 4 + 8 * u64::from(self.size)));
            return new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
        }
        u16::from_le(self.ram.load(self.used.addr())) & 1 == 0
    }

    /// Returns the next used element: the head and the number of bytes written, both as the device reports them.
    pub fn pop_used(&mut self) -> Option<(u32, u32)> {
        if self.used_idx() == self.next_used {
            return None;
        }
        let slot = self.used.addr() + 4 + 8 * u64::from(self.next_used % self.size);
        let (head, len) = (u32::from_le(self.ram.load(slot)), u32::from_le(self.ram.load(slot + 4)));
        self.next_used = self.next_used.wrapping_add(1);
        Some((head, len))
    }

    /// Returns the device's index of the used ring.
    pub fn used_idx(&self) -> u16 {
        u16::from_le(self.ram.load(self.used.addr() + 2))
    }

    /// Requests a notification for the next used element. Returns true if there is one already.
    pub fn enable_call(&mut self) -> bool {
        if self.has_event_idx {
            self.ram.store(self.avail.addr() + 4 + 2 * u64::from(self.size), self.next_used.to_le());
        }
        fence(Ordering::SeqCst);
        self.used_idx() != self.next_used
    }
}
