//! Finds virtio file systems on the PCI bus and among a microvm's virtio-mmio devices.

use alloc::vec::Vec;

use transom_guest::transport::{
    Interrupts, Transport as _, TransportError, VolatileRegisters,
    mmio::Mmio,
    pci::{BarRange, ConfigSpace, Msix, Pci},
};

use super::ports;
use crate::bare::{FILE_SYSTEM, lock::RawLock, memory};

/// The ports that select a register of a PCI function's configuration space, and that access it.
const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const ENABLED: u32 = 1 << 31;

/// Device and vendor id of a modern virtio file system (virtio 1.3, section 4.1.2.1).
const IDENTITY: u32 = 0x105a_1af4;

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
    /// Returns the first file system on bus 0. The firmware has assigned its addresses.
    pub(super) fn find() -> Option<Self> {
        (0..32).map(|device| Self { device }).find(|function| function.read_u32(0) == IDENTITY)
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

/// Returns the file systems of a microvm.
///
/// # Errors
/// One of them is a legacy device.
pub(super) fn in_memory() -> Result<Vec<Mmio<VolatileRegisters, RawLock>>, TransportError> {
    let mut found = Vec::new();
    for number in 0..MMIO_DEVICES {
        match Mmio::new(memory::registers(MMIO_AT + number * MMIO_LEN, MMIO_LEN)?, Interrupts::Polling) {
            Ok(device) if device.device_type() == FILE_SYSTEM => found.push(device),
            Err(error @ TransportError::Legacy { device_type: FILE_SYSTEM }) => return Err(error),
            // Other machines have nothing at this address, or registers without a device.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(found)
}
