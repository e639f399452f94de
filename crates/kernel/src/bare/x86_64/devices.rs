//! Where a PC has its devices: the PCI bus, by I/O ports, and a microvm's virtio-mmio devices.

use alloc::{format, vec::Vec};

use transom_guest::transport::{
    Interrupts, Transport as _, TransportError, VolatileRegisters,
    mmio::Mmio,
    pci::{ConfigAccess, Place},
};

use super::ports;
use crate::bare::{FILE_SYSTEM, Found, lock::RawLock, memory};

/// The ports that select a register of a PCI function's configuration space, and that access it.
pub(super) const CONFIG_ADDRESS: u16 = 0xcf8;
pub(super) const CONFIG_DATA: u16 = 0xcfc;
pub(super) const ENABLED: u32 = 1 << 31;

/// The virtio-mmio devices of QEMU's microvm: address, maximum number, and distance in bytes.
const MMIO_AT: u64 = 0xfeb0_0000;
const MMIO_DEVICES: u64 = 24;
const MMIO_LEN: u64 = 512;

/// The configuration of PCI functions, by I/O ports.
pub(super) struct Ports;

impl Ports {
    fn choose(place: Place, offset_bytes: u8) {
        let Place { bus, device, function } = place;
        let place = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
        ports::write_u32(CONFIG_ADDRESS, ENABLED | place | u32::from(offset_bytes & !3));
    }
}

impl ConfigAccess for Ports {
    fn read_u32(&self, place: Place, offset_bytes: u8) -> u32 {
        Self::choose(place, offset_bytes);
        ports::read_u32(CONFIG_DATA)
    }

    fn write_u32(&self, place: Place, offset_bytes: u8, value: u32) {
        Self::choose(place, offset_bytes);
        ports::write_u32(CONFIG_DATA, value);
    }
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
