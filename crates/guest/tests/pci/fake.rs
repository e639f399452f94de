//! A model of a file system on the PCI bus: a configuration space whose BARs can be sized, and the structures in BAR 4.
//! It records everything that a driver must not do.

use std::sync::Arc;

use parking_lot::Mutex;
use transom_guest::transport::{
    QueueAddresses, Registers, TransportError,
    pci::{BarRange, ConfigSpace},
};

/// The address of BAR 4, and its layout.
pub(crate) const BAR: u64 = 0xfe00_0000;
pub(crate) const BAR_LEN: u32 = 0x4000;
const ISR: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
const NOTIFY: u64 = 0x3000;

/// The shared memory's BAR 2, which is 64 bits wide.
pub(crate) const WINDOW: u64 = 0x40_0000_0000;
pub(crate) const WINDOW_LEN: u64 = 1 << 33;

/// The device; its clones are the same one.
#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<State>>);

/// What the device holds, and what the driver has done.
pub(crate) struct State {
    pub(crate) config: [u8; 256],
    pub(crate) bar_masks: [u32; 6],
    pub(crate) features: u64,
    pub(crate) driver_features: u64,
    pub(crate) status: u8,
    pub(crate) queues: Vec<Queue>,
    pub(crate) notified: Vec<(u64, u16)>,
    pub(crate) isr: u8,
    /// Vectors from this one on cannot be set up.
    pub(crate) vectors: u16,
    pub(crate) faults: Vec<String>,
    device_half: u32,
    driver_half: u32,
    selected: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) len: u16,
    pub(crate) vector: u16,
    pub(crate) notify_off: u16,
    pub(crate) addresses: QueueAddresses,
    pub(crate) is_enabled: bool,
}

impl Default for Fake {
    /// Creates a device with its structures, the window as region 0, and capabilities in an arbitrary order.
    fn default() -> Self {
        let mut state = State {
            config: [0; 256],
            bar_masks: [0, 0, 0, !1, !(BAR_LEN - 1), 0],
            features: 1 << 32 | 1 << 29,
            driver_features: 0,
            status: 0,
            queues: (0..3).map(Queue::idle).collect(),
            notified: Vec::new(),
            isr: 0,
            vectors: 3,
            faults: Vec::new(),
            device_half: 0,
            driver_half: 0,
            selected: 0,
        };
        state.put(0, &0x105a_1af4u32.to_le_bytes());
        state.put(0x06, &[0x10]);
        state.put(0x18, &(WINDOW | 0xc).to_le_bytes());
        state.put(0x20, &(BAR as u32).to_le_bytes());
        state.list(&[
            vec![0x05, 0, 0, 0],
            capability_64(0, 2, 0, WINDOW_LEN),
            capability(3, 4, ISR, 1, &[]),
            capability(2, 4, NOTIFY, 0x1000, &4u32.to_le_bytes()),
            capability(4, 4, DEVICE, 40, &[]),
            capability(1, 4, 0, 56, &[]),
            capability(5, 0, 0, 0, &[0; 4]),
        ]);
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Queue {
    fn idle(notify_off: u16) -> Self {
        let addresses = QueueAddresses { descriptors: 0, available: 0, used: 0 };
        Self { len: 256, vector: 0xffff, notify_off, addresses, is_enabled: false }
    }
}

/// Returns a virtio capability without its link.
pub(crate) fn capability(kind: u8, bar: u8, offset: u64, len: u32, more: &[u8]) -> Vec<u8> {
    let head = [9, 0, 16 + more.len() as u8, kind, bar, 0, 0, 0];
    [&head[..], &(offset as u32).to_le_bytes(), &len.to_le_bytes(), more].concat()
}

/// Returns a shared memory region's capability without its link.
pub(crate) fn capability_64(id: u8, bar: u8, offset: u64, len: u64) -> Vec<u8> {
    let high = [((offset >> 32) as u32).to_le_bytes(), ((len >> 32) as u32).to_le_bytes()].concat();
    let mut bytes = capability(8, bar, offset, len as u32, &high);
    bytes[5] = id;
    bytes
}

impl State {
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.config[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the list of capabilities.
    pub(crate) fn list(&mut self, capabilities: &[Vec<u8>]) {
        let (mut link, mut at) = (0x34, 0x40);
        for capability in capabilities {
            self.put(link, &[at as u8]);
            self.put(at, capability);
            self.put(at + 1, &[0]);
            (link, at) = (at + 1, (at + capability.len()).next_multiple_of(4));
        }
    }

    fn demand(&mut self, holds: bool, what: &str) {
        if !holds {
            self.faults.push(what.to_owned());
        }
    }

    fn queue(&mut self) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(self.selected))
    }

    fn read_common(&mut self, at: u64, width: u32) -> u32 {
        match (at, width) {
            (4, 4) => (self.features >> (32 * self.device_half)) as u32,
            (18, 2) => self.queues.len() as u32,
            (20, 1) => self.status.into(),
            (21, 1) => 0,
            (24, 2) => self.queue().map_or(0, |queue| queue.len.into()),
            (26, 2) => self.queue().map_or(0xffff, |queue| queue.vector.into()),
            (28, 2) => self.queue().map_or(0, |queue| queue.is_enabled.into()),
            (30, 2) => self.queue().map_or(0, |queue| queue.notify_off.into()),
            _ => {
                self.faults.push(format!("read of {width} bytes at {at}"));
                u32::MAX
            }
        }
    }

    fn write_common(&mut self, at: u64, width: u32, value: u32) {
        let (status, vectors) = (self.status, self.vectors);
        match (at, width) {
            (0, 4) => self.device_half = value,
            (8, 4) => self.driver_half = value,
            (12, 4) => {
                self.demand(status & 0b1010 == 0b0010, "features outside their time");
                self.driver_features |= u64::from(value) << (32 * self.driver_half);
            }
            (20, 1) if value == 0 => {
                self.status = 0;
                self.queues = (0..3).map(Queue::idle).collect();
            }
            (20, 1) => {
                self.demand(value as u8 & status == status, "a bit of the status was taken back");
                self.demand(value & 4 == 0 || status & 8 != 0, "DRIVER_OK before FEATURES_OK");
                self.status = value as u8;
            }
            (22, 2) => self.selected = value as u16,
            (24 | 26 | 28, 2) | (32..56, 4) => {
                self.demand(status & 0b1100 == 0b1000, "a queue outside its time");
                let Some(queue) = self.queue() else { return self.demand(false, "no such queue") };
                let is_idle = !queue.is_enabled;
                let word = u64::from(value) << (8 * (at & 4));
                match at {
                    24 => queue.len = value as u16,
                    26 => queue.vector = if value < vectors.into() { value as u16 } else { 0xffff },
                    28 => queue.is_enabled = value == 1,
                    32..40 => queue.addresses.descriptors |= word,
                    40..48 => queue.addresses.available |= word,
                    _ => queue.addresses.used |= word,
                }
                self.demand(is_idle, "a running queue was changed");
            }
            _ => self.faults.push(format!("write of {width} bytes at {at}")),
        }
    }

    fn bar_of(offset: u8) -> Option<usize> {
        (0x10..0x28).contains(&offset).then(|| usize::from(offset - 0x10) / 4)
    }
}

impl ConfigSpace for Fake {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        let at = usize::from(offset_bytes);
        u32::from_le_bytes(self.0.lock().config[at..at + 4].try_into().unwrap())
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        let mut state = self.0.lock();
        let at = usize::from(offset_bytes);
        let command = state.config[4];
        match State::bar_of(offset_bytes) {
            Some(bar) => {
                state.demand(command & 2 == 0, "a BAR was changed while it was decoded");
                let old = u32::from_le_bytes(state.config[at..at + 4].try_into().unwrap());
                let mask = state.bar_masks[bar];
                state.put(at, &(value & mask | old & !mask & 0xf).to_le_bytes());
            }
            None if offset_bytes == 4 => state.put(4, &value.to_le_bytes()[..2]),
            None => state.faults.push(format!("write to the configuration at {at:#x}")),
        }
    }
}

/// A mapped part of BAR 4.
pub(crate) struct Part(Fake, u64, usize);

impl Fake {
    /// Maps a range as a kernel would.
    pub(crate) fn map(&self, range: BarRange) -> Result<Part, TransportError> {
        assert_eq!(range.bar, 4);
        assert!(range.address >= BAR && range.address + range.len_bytes <= BAR + u64::from(BAR_LEN));
        Ok(Part(self.clone(), range.address - BAR, range.len_bytes as usize))
    }
}

impl Part {
    fn read(&self, offset: usize, width: u32) -> u32 {
        assert!(offset + width as usize <= self.2 && offset % width as usize == 0);
        let mut state = self.0.0.lock();
        match self.1 + offset as u64 {
            at @ ..ISR => state.read_common(at, width),
            ISR => u32::from(std::mem::take(&mut state.isr)),
            // The configuration: a tag that repeats one letter, then two request queues.
            at @ DEVICE..NOTIFY if at < DEVICE + 36 => u32::from_le_bytes([b'a'; 4]),
            DEVICE..NOTIFY => 2,
            _ => {
                state.demand(false, "a notification was read");
                0
            }
        }
    }

    fn write(&self, offset: usize, width: u32, value: u32) {
        assert!(offset + width as usize <= self.2 && offset % width as usize == 0);
        let mut state = self.0.0.lock();
        match self.1 + offset as u64 {
            at @ ..ISR => state.write_common(at, width, value),
            at @ NOTIFY.. => {
                let is_enabled = state.queues.get(value as usize).is_some_and(|queue| queue.is_enabled);
                let is_running = state.status & 4 != 0 && is_enabled && width == 2;
                state.demand(is_running, "notification of a queue that does not run");
                state.notified.push((at - NOTIFY, value as u16));
            }
            at => state.faults.push(format!("write at {at:#x}")),
        }
    }
}

impl Registers for Part {
    fn len_bytes(&self) -> usize {
        self.2
    }
    fn read_u8(&self, offset_bytes: usize) -> u8 {
        self.read(offset_bytes, 1) as u8
    }
    fn read_u16(&self, offset_bytes: usize) -> u16 {
        self.read(offset_bytes, 2) as u16
    }
    fn read_u32(&self, offset_bytes: usize) -> u32 {
        self.read(offset_bytes, 4)
    }
    fn write_u8(&self, offset_bytes: usize, value: u8) {
        self.write(offset_bytes, 1, value.into());
    }
    fn write_u16(&self, offset_bytes: usize, value: u16) {
        self.write(offset_bytes, 2, value.into());
    }
    fn write_u32(&self, offset_bytes: usize, value: u32) {
        self.write(offset_bytes, 4, value);
    }
}
