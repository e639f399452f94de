//! A model of a file system behind virtio-mmio registers. It records everything that a driver must not do.

use std::sync::Arc;

use parking_lot::Mutex;
use transom_guest::transport::{QueueAddresses, Registers, ShmRegion};

const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;

/// The device; its clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<State>>);

/// What the device holds, and what the driver has done.
pub(crate) struct State {
    pub(crate) magic: u32,
    pub(crate) version: u32,
    pub(crate) device_id: u32,
    pub(crate) features: u64,
    pub(crate) driver_features: u64,
    pub(crate) status: u32,
    /// This many reads of the status after a reset still return something else.
    pub(crate) reset_reads: u32,
    pub(crate) queues: Vec<Queue>,
    pub(crate) notified: Vec<u32>,
    pub(crate) interrupt: u32,
    pub(crate) config: Vec<u8>,
    pub(crate) generation: u32,
    /// This many reads of the generation still change it, and with it the whole configuration.
    pub(crate) changes: u32,
    pub(crate) regions: Vec<(u32, ShmRegion)>,
    /// Descriptions of what the driver did wrong.
    pub(crate) faults: Vec<String>,
    selected: [u32; 4],
    resetting: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) len_max: u32,
    pub(crate) len: u32,
    pub(crate) addresses: QueueAddresses,
    pub(crate) is_ready: bool,
}

impl Queue {
    pub(crate) fn idle(len_max: u32) -> Self {
        Self { len_max, len: 0, addresses: QueueAddresses { descriptors: 0, available: 0, used: 0 }, is_ready: false }
    }
}

impl Default for State {
    fn default() -> Self {
        let mut config = b"share".to_vec();
        config.resize(36, 0);
        config.extend(2u32.to_le_bytes());
        Self {
            magic: 0x7472_6976,
            version: 2,
            device_id: 26,
            features: 1 << 32 | 1 << 28 | 1 << 29,
            driver_features: 0,
            status: 0,
            reset_reads: 0,
            queues: vec![Queue::idle(128), Queue::idle(1024), Queue::idle(100)],
            notified: Vec::new(),
            interrupt: 0,
            config,
            generation: 0,
            changes: 0,
            regions: vec![(0, ShmRegion { address: 0x1_0000_0000, len_bytes: 1 << 33 })],
            faults: Vec::new(),
            selected: [0; 4],
            resetting: 0,
        }
    }
}

impl State {
    fn demand(&mut self, holds: bool, what: &str) {
        if !holds {
            self.faults.push(what.to_owned());
        }
    }

    fn selected_queue(&mut self) -> Option<&mut Queue> {
        self.queues.get_mut(self.selected[2] as usize)
    }

    /// Length and base of the selected region.
    fn region(&self) -> (u64, u64) {
        let region = self.regions.iter().find(|(id, _)| *id == self.selected[3]);
        region.map_or((u64::MAX, u64::MAX), |(_, region)| (region.len_bytes, region.address))
    }

    fn read(&mut self, offset: usize) -> u32 {
        match offset {
            0x000 => self.magic,
            0x004 => self.version,
            0x008 => self.device_id,
            0x010 => (self.features >> (32 * self.selected[0])) as u32,
            0x034 => self.selected_queue().map_or(0, |queue| queue.len_max),
            0x044 => self.selected_queue().map_or(0, |queue| queue.is_ready.into()),
            0x060 => self.interrupt,
            0x070 if self.resetting > 0 => {
                self.resetting -= 1;
                0x0f
            }
            0x070 => self.status,
            0x0b0 => self.region().0 as u32,
            0x0b4 => (self.region().0 >> 32) as u32,
            0x0b8 => self.region().1 as u32,
            0x0bc => (self.region().1 >> 32) as u32,
            0x0fc => {
                if self.changes > 0 {
                    self.changes -= 1;
                    self.generation += 1;
                    let mark = self.generation as u8;
                    self.config[..36].fill(mark);
                }
                self.generation
            }
            _ => {
                self.faults.push(format!("read of {offset:#x}"));
                0
            }
        }
    }

    fn write(&mut self, offset: usize, value: u32) {
        let (status, half) = (self.status, |old: u64, is_high: bool| match is_high {
            false => old & !0xffff_ffff | u64::from(value),
            true => old & 0xffff_ffff | u64::from(value) << 32,
        });
        match offset {
            0x014 => self.selected[0] = value,
            0x024 => self.selected[1] = value,
            0x030 => self.selected[2] = value,
            0x0ac => self.selected[3] = value,
            0x020 => {
                self.demand(status & DRIVER != 0, "features before DRIVER");
                self.demand(status & FEATURES_OK == 0, "features after FEATURES_OK");
                self.driver_features = half(self.driver_features, self.selected[1] == 1);
            }
            0x038 | 0x044 | 0x080..=0x0a4 => {
                self.demand(status & FEATURES_OK != 0, "a queue before FEATURES_OK");
                self.demand(status & DRIVER_OK == 0, "a queue after DRIVER_OK");
                let Some(queue) = self.selected_queue() else { return self.demand(false, "no such queue") };
                let is_free = !queue.is_ready;
                match offset {
                    0x038 => queue.len = value,
                    0x044 => queue.is_ready = value == 1,
                    0x080 | 0x084 => queue.addresses.descriptors = half(queue.addresses.descriptors, offset == 0x084),
                    0x090 | 0x094 => queue.addresses.available = half(queue.addresses.available, offset == 0x094),
                    _ => queue.addresses.used = half(queue.addresses.used, offset == 0x0a4),
                }
                self.demand(is_free, "a running queue was changed");
            }
            0x050 => {
                let is_ready = self.queues.get(value as usize).is_some_and(|queue| queue.is_ready);
                self.demand(status & DRIVER_OK != 0 && is_ready, "notification of a queue that does not run");
                self.notified.push(value);
            }
            0x064 => self.interrupt &= !value,
            0x070 if value == 0 => {
                self.status = 0;
                self.resetting = self.reset_reads;
                self.queues.iter_mut().for_each(|queue| *queue = Queue::idle(queue.len_max));
            }
            0x070 => {
                self.demand(value & status == status, "a bit of the status was taken back");
                self.demand(value & DRIVER == 0 || value & ACKNOWLEDGE != 0, "DRIVER before ACKNOWLEDGE");
                self.demand(value & DRIVER_OK == 0 || status & FEATURES_OK != 0, "DRIVER_OK before FEATURES_OK");
                self.status = value;
            }
            _ => self.faults.push(format!("write to {offset:#x}")),
        }
    }
}

impl Registers for Fake {
    fn len_bytes(&self) -> usize {
        0x100 + self.0.lock().config.len()
    }

    fn read_u8(&self, offset_bytes: usize) -> u8 {
        let mut state = self.0.lock();
        state.demand(offset_bytes >= 0x100, "a byte of a register was read");
        offset_bytes.checked_sub(0x100).and_then(|offset| state.config.get(offset).copied()).unwrap_or(0xff)
    }

    fn read_u16(&self, offset_bytes: usize) -> u16 {
        u16::from_le_bytes([self.read_u8(offset_bytes), self.read_u8(offset_bytes + 1)])
    }

    fn read_u32(&self, offset_bytes: usize) -> u32 {
        assert_eq!(offset_bytes % 4, 0);
        if offset_bytes < 0x100 {
            return self.0.lock().read(offset_bytes);
        }
        u32::from_le_bytes([0, 1, 2, 3].map(|index| self.read_u8(offset_bytes + index)))
    }

    fn write_u8(&self, offset_bytes: usize, _value: u8) {
        self.0.lock().faults.push(format!("a byte was written to {offset_bytes:#x}"));
    }

    fn write_u16(&self, offset_bytes: usize, _value: u16) {
        self.0.lock().faults.push(format!("two bytes were written to {offset_bytes:#x}"));
    }

    fn write_u32(&self, offset_bytes: usize, value: u32) {
        self.0.lock().write(offset_bytes, value);
    }
}
