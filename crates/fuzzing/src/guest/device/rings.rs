//! The device's side of a queue. It only follows addresses in the pool; while the device is honest, all of them must
//! be.

use transom_guest::transport::QueueAddresses;

use super::super::memory::Reach;

const DESC_NEXT: u16 = 1;
const DESC_WRITE: u16 = 2;
const DESC_INDIRECT: u16 = 4;
const DESCRIPTOR_LEN: usize = 16;

/// The longest chain that is followed: an honest driver's has at most 1024 pieces.
const CHAIN_MAX: usize = 1024;

pub(super) struct Ring {
    len: usize,
    /// Offsets in the pool.
    descriptors: usize,
    available: usize,
    used: usize,
    has_event_index: bool,
    seen: u16,
    used_index: u16,
    /// Seen and not used.
    waiting: Vec<Chain>,
}

/// A request as the device sees it.
pub(super) struct Chain {
    pub(super) head: u16,
    /// Offset in the pool and length of what the device may write.
    writable: Vec<(usize, u32)>,
}

impl Chain {
    pub(super) fn room(&self) -> u32 {
        self.writable.iter().fold(0, |sum, &(_, len)| sum.saturating_add(len))
    }

    pub(super) fn fill(&self, reach: &Reach, written: u32, value: u8) {
        let mut left = written as usize;
        for &(offset, len) in &self.writable {
            let here = left.min(len as usize);
            reach.fill(offset, here, value);
            left -= here;
        }
    }
}

impl Ring {
    pub(super) fn new(reach: &Reach, len: u16, addresses: QueueAddresses, has_event_index: bool) -> Self {
        let len = usize::from(len);
        let part = |address, len_bytes| reach.offset(address, len_bytes).expect("a queue lies in the pool");
        Self {
            len,
            descriptors: part(addresses.descriptors, DESCRIPTOR_LEN * len),
            available: part(addresses.available, 6 + 2 * len),
            used: part(addresses.used, 6 + 8 * len),
            has_event_index,
            seen: 0,
            used_index: 0,
            waiting: Vec::new(),
        }
    }

    /// Looks what was made available. Where the device was honest, the driver is.
    pub(super) fn look(&mut self, reach: &Reach, is_honest: bool) {
        let available = reach.u16(self.available + 2);
        for _ in 0..self.len {
            if self.seen == available {
                break;
            }
            let head = reach.u16(self.available + 4 + 2 * (usize::from(self.seen) % self.len));
            self.seen = self.seen.wrapping_add(1);
            let chain = self.walk(reach, head);
            assert!(chain.is_some() || !is_honest, "chain {head} leads out of the pool");
            self.waiting.extend(chain);
        }
        if self.has_event_index {
            reach.write(self.used + 4 + 8 * self.len, &self.seen.to_le_bytes());
        }
    }

    fn walk(&self, reach: &Reach, head: u16) -> Option<Chain> {
        let (mut table, mut len, mut index) = (self.descriptors, self.len, usize::from(head));
        let mut writable = Vec::new();
        for _ in 0..CHAIN_MAX {
            if index >= len {
                return None;
            }
            let bytes: [u8; DESCRIPTOR_LEN] = reach.read(table + DESCRIPTOR_LEN * index);
            let address = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            let len_bytes = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
            let flags = u16::from_le_bytes([bytes[12], bytes[13]]);
            let offset = reach.offset(address, len_bytes as usize)?;
            if flags & DESC_INDIRECT != 0 {
                (table, len, index) = (offset, len_bytes as usize / DESCRIPTOR_LEN, 0);
                continue;
            }
            if flags & DESC_WRITE != 0 {
                writable.push((offset, len_bytes));
            }
            if flags & DESC_NEXT == 0 {
                return Some(Chain { head, writable });
            }
            index = u16::from_le_bytes([bytes[14], bytes[15]]).into();
        }
        None
    }

    /// One of those that wait.
    pub(super) fn take(&mut self, which: u8) -> Option<Chain> {
        let count = self.waiting.len();
        (count > 0).then(|| self.waiting.swap_remove(usize::from(which & 31) % count))
    }

    /// Says that a chain is used, and moves the index by `step`.
    pub(super) fn push(&mut self, reach: &Reach, id: u32, written: u32, step: u16) {
        let element = self.used + 4 + 8 * (usize::from(self.used_index) % self.len);
        reach.write(element, &id.to_le_bytes());
        reach.write(element + 4, &written.to_le_bytes());
        self.used_index = self.used_index.wrapping_add(step);
        reach.write(self.used + 2, &self.used_index.to_le_bytes());
    }

    /// Writes anything anywhere into the used ring.
    pub(super) fn scribble(&self, reach: &Reach, at: u8, value: u16) {
        reach.write(self.used + usize::from(at) % (6 + 8 * self.len), &value.to_le_bytes());
    }
}
