//! Finds virtio file systems on the PCI bus and among a microvm's virtio-mmio devices.

#![expect(unsafe_code, reason = "device registers are at fixed addresses")]

use alloc::vec::Vec;
use core::ptr::NonNull;

use spinning_top::RawSpinlock;
use transom_guest::transport::{
    Interrupts, Transport as _, TransportError, VolatileRegisters,
    mmio::Mmio,
    pci::{ConfigSpace, Pci},
};

use super::ports;

/// The ports that select a register of a PCI function's configuration space, and that access it.
const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const ENABLED: u32 = 1 << 31;

/// Device and vendor id of a modern virtio file system (virtio 1.3, section 4.1.2.1).
const FILE_SYSTEM: u32 = 0x105a_1af4;
const DEVICE_TYPE: u32 = 26;

/// The virtio-mmio devices of QEMU's microvm: address, maximum number, and distance in bytes.
const MMIO_AT: usize = 0xfeb0_0000;
const MMIO_DEVICES: usize = 24;
const MMIO_LEN: usize = 512;

/// A function on bus 0.
struct Function {
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
    fn choose(&self, offset_bytes: u8) {
        ports::write_u32(CONFIG_ADDRESS, ENABLED | self.device << 11 | u32::from(offset_bytes & !3));
    }
}

/// Returns the first file system on bus 0. The firmware has assigned its addresses.
pub(super) fn on_pci() -> Result<Option<Pci<VolatileRegisters, RawSpinlock>>, TransportError> {
    let mut functions = (0..32).map(|device| Function { device });
    let Some(function) = functions.find(|function| function.read_u32(0) == FILE_SYSTEM) else { return Ok(None) };
    let map = |range: transom_guest::transport::pci::BarRange| {
        let beyond = TransportError::Broken("its registers are above 512 GiB");
        let end = range.address.checked_add(range.len_bytes).filter(|&end| end <= 512 << 30);
        end.ok_or(beyond)?;
        registers(range.address as usize, range.len_bytes as usize)
    };
    Pci::new(&function, map, Interrupts::Polling).map(Some)
}

/// Returns the file systems of a microvm.
pub(super) fn in_memory() -> Result<Vec<Mmio<VolatileRegisters, RawSpinlock>>, TransportError> {
    let mut found = Vec::new();
    for number in 0..MMIO_DEVICES {
        // Other machines have nothing at this address, or registers without a device.
        if let Ok(device) = Mmio::new(registers(MMIO_AT + number * MMIO_LEN, MMIO_LEN)?, Interrupts::Polling)
            && device.device_type() == DEVICE_TYPE
        {
            found.push(device);
        }
    }
    Ok(found)
}

fn registers(address: usize, len_bytes: usize) -> Result<VolatileRegisters, TransportError> {
    let start = NonNull::new(address as *mut u8).ok_or(TransportError::Broken("its registers are at address 0"))?;
    // SAFETY: all addresses below 512 GiB are mapped permanently, these belong to a device and not to the kernel's
    // memory, and no reference points there. BARs are aligned to 16 bytes, and virtio's structures to four.
    Ok(unsafe { VolatileRegisters::new(start, len_bytes) })
}
