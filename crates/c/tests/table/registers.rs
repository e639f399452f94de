//! virtio-mmio registers, version 2, in front of the fake device (virtio 1.3 §4.2.2).

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use transom_c::TransomRegisters;
use transom_guest::transport::{QueueAddresses, Transport as _};

use crate::fake::{Fake, FakeTransport};

/// The configuration: a tag of 36 bytes, and the number of request queues.
const LEN: usize = 0x100 + 40;

pub(crate) struct Mmio {
    device: FakeTransport,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    half: u32,
    driver_half: u32,
    driver_features: u64,
    queue: u16,
    len: u16,
    is_running: [bool; 8],
    /// Descriptors, available, used.
    addresses: [u64; 3],
}

impl Mmio {
    pub(crate) fn new(fake: &Arc<Fake>) -> Self {
        Self { device: FakeTransport(Arc::clone(fake)), state: Mutex::default() }
    }

    fn read(&self, offset: usize) -> u32 {
        let state = self.state.lock().unwrap();
        match offset {
            0x000 => 0x7472_6976,
            0x004 => 2,
            0x008 => 26,
            0x010 => (self.device.device_features().unwrap() >> (32 * state.half)) as u32,
            0x034 => self.device.queue_len_max(state.queue).unwrap().into(),
            0x044 => state.is_running[usize::from(state.queue)].into(),
            0x070 => self.device.status().unwrap().into(),
            // There are no regions.
            0x0b0..0x0c0 => u32::MAX,
            _ => 0,
        }
    }

    fn write(&self, offset: usize, value: u32) {
        let mut state = self.state.lock().unwrap();
        match offset {
            0x014 => state.half = value,
            0x024 => state.driver_half = value,
            0x020 => {
                state.driver_features |= u64::from(value) << (32 * state.driver_half);
                self.device.set_driver_features(state.driver_features).unwrap();
            }
            0x030 => state.queue = value as u16,
            0x038 => state.len = value as u16,
            0x044 => {
                let [descriptors, available, used] = std::mem::take(&mut state.addresses);
                let queue = state.queue;
                state.is_running[usize::from(queue)] = true;
                self.device.start_queue(queue, state.len, QueueAddresses { descriptors, available, used }).unwrap();
            }
            0x050 => self.device.notify(value as u16),
            0x070 if value == 0 => {
                state.is_running = [false; 8];
                self.device.reset().unwrap();
            }
            0x070 => self.device.add_status(value as u8).unwrap(),
            0x080..0x0a8 => {
                state.addresses[(offset - 0x80) / 16] |= u64::from(value) << (8 * (offset & 4));
            }
            _ => {}
        }
    }
}

/// Returns the registers of a device as C passes them. The device outlives them.
pub(crate) fn of(device: &Mmio) -> TransomRegisters {
    TransomRegisters {
        base: std::ptr::null_mut(),
        len: LEN,
        context: (&raw const *device).cast_mut().cast(),
        read: Some(read),
        write: Some(write),
    }
}

unsafe extern "C" fn read(context: *mut c_void, offset: usize, width: usize) -> u32 {
    // SAFETY: `of` passes the device, which outlives the registers.
    let device = unsafe { &*context.cast::<Mmio>() };
    if offset < 0x100 {
        assert_eq!(width, 4);
        return device.read(offset);
    }
    let mut bytes = [0; 4];
    device.device.read_config(offset - 0x100, &mut bytes[..width]).unwrap();
    u32::from_le_bytes(bytes)
}

unsafe extern "C" fn write(context: *mut c_void, offset: usize, width: usize, value: u32) {
    assert_eq!(width, 4);
    // SAFETY: as in `read`.
    unsafe { &*context.cast::<Mmio>() }.write(offset, value);
}
