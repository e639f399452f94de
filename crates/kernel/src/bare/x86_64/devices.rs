//! Finds virtio file systems on the PCI bus and among a microvm's virtio-mmio devices.

use alloc::{format, vec::Vec};

use transom_guest::transport::{
    Interrupts, Transport as _, TransportError, VolatileRegisters,
    mmio::Mmio,
    pci::{BarRange, ConfigSpace, Msix, Pci},
};

use super::ports;
use crate::bare::{FILE_SYSTEM, Found, lock::RawLock, memory};

/// The ports that select a register of a PCI function's configuration space, and that access it.
pub(super) const CONFIG_ADDRESS: u16 = 0xcf8;
pub(super) const CONFIG_DATA: u16 = 0xcfc;
pub(super) const ENABLED: u32 = 1 << 31;

/// The vendor of virtio devices, and their device ids: 0x1040 and the type, or, if they also have the legacy interface,
/// less (virtio 1.3, section 4.1.2). The subsystem id of these is the type.
const VENDOR: u32 = 0x1af4;
const MODERN: u32 = 0x1040;
const TRANSITIONAL: core::ops::Range<u32> = 0x1000..MODERN;
const SUBSYSTEM: u8 = 0x2c;

/// The virtio-mmio devices of QEMU's microvm: address, maximum number, and distance in bytes.
const MMIO_AT: u64 = 0xfeb0_0000;
const MMIO_DEVICES: u64 = 24;
const MMIO_LEN: u64 = 512;

/// A function on bus 0.
pub(super) struct Function {
    device: u32,
}

impl ConfigSpace for Function {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        self.choose(offset_bytes);
        ports::read_u32(CONFIG_DATA)
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        self.choose(offset_bytes);
        ports::write_u32(CONFIG_DATA, value);
    }
}

impl Function {
    /// Returns the first file system on bus 0, and adds other virtio devices to `found`. The firmware has assigned its
    /// addresses.
    pub(super) fn find(found: &mut Found) -> Option<Self> {
        for function in (0..32).map(|device| Self { device }) {
            match function.device_type() {
                Some(FILE_SYSTEM) => return Some(function),
                Some(other) => found.add_other(other, &format!("is PCI device {}", function.device)),
                None => {}
            }
        }
        None
    }

    /// Returns the type of a virtio device.
    fn device_type(&self) -> Option<u32> {
        let identity = self.read_u32(0);
        match (identity & 0xffff, identity >> 16) {
            (VENDOR, MODERN..) => Some((identity >> 16) - MODERN),
            (VENDOR, id) if TRANSITIONAL.contains(&id) => Some(self.read_u32(SUBSYSTEM) >> 16),
            _ => None,
        }
    }

    /// Returns the device's transport.
    pub(super) fn open(&self, interrupts: Interrupts) -> Result<Pci<VolatileRegisters, RawLock>, TransportError> {
        Pci::new(self, map, interrupts)
    }

    /// Returns the device's table of messages, if it has one.
    pub(super) fn messages(&self) -> Result<Option<Msix<VolatileRegisters>>, TransportError> {
        Msix::new(self, map)
    }

    fn choose(&self, offset_bytes: u8) {
        ports::write_u32(CONFIG_ADDRESS, ENABLED | self.device << 11 | u32::from(offset_bytes & !3));
    }
}

fn map(range: BarRange) -> Result<VolatileRegisters, TransportError> {
    memory::registers(range.address, range.len_bytes)
}

/// Returns the file systems of a microvm, and adds other virtio devices to `found`.
///
/// # Errors
/// One of them is a legacy device.
pub(super) fn in_memory(found: &mut Found) -> Result<Vec<Mmio<VolatileRegisters, RawLock>>, TransportError> {
    let mut devices = Vec::new();
    for address in (0..MMIO_DEVICES).map(|number| MMIO_AT + number * MMIO_LEN) {
        match Mmio::new(memory::registers(address, MMIO_LEN)?, Interrupts::Polling) {
            Ok(device) if device.device_type() == FILE_SYSTEM => devices.push(device),
            Ok(device) => found.add_other(device.device_type(), &format!("is at {address:#x}")),
            Err(error @ TransportError::Legacy { device_type: FILE_SYSTEM }) => return Err(error),
            Err(TransportError::Legacy { device_type }) => {
                found.add_other(device_type, &format!("is at {address:#x}"));
            }
            // Other machines have nothing at this address, or registers without a device.
            Err(_) => {}
        }
    }
    Ok(devices)
}
