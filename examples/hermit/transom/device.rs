//! The file system on the PCI bus, which the device tree names.
//!
//! Hermit knows no PCI on riscv64, so the library's helpers set the bus up.

#![allow(unsafe_code, reason = "the loader leaves the device tree at an address")]

use core::slice;

use transom_guest::transport::fdt::Fdt;
use transom_guest::transport::pci::{BarRange, Ecam, FreeAddresses, Pci, assign_bars, functions};
use transom_guest::transport::{Interrupts, VolatileRegisters};

use super::platform::RawLock;
use super::{Failure, memory};

/// The virtio device type of a file system (virtio 1.3, section 5).
const FILE_SYSTEM: u32 = 26;

/// Length of the configuration of bus 0: 4 KiB for each function. Nothing is behind a bridge here.
const BUS_LEN: u64 = 1 << 20;

/// Returns the first file system on the bus.
pub(super) fn find() -> Result<Pci<VolatileRegisters, RawLock>, Failure> {
    let tree = crate::env::boot_info().hardware_info.device_tree;
    let tree: *const u8 = core::ptr::with_exposed_provenance(tree.ok_or("no device tree")?.get() as usize);
    // SAFETY: the loader vouches for the tree, which begins with its length and never changes.
    let tree = unsafe {
        let len_bytes = Fdt::len_bytes(&*tree.cast())?;
        Fdt::new(slice::from_raw_parts(tree, len_bytes))?
    };
    let host = tree.pci_host()?.ok_or("the device tree has no PCI bus")?;
    let access = Ecam::new(memory::registers(host.address, host.len_bytes.min(BUS_LEN))?);
    let function = functions(&access, 0..=0).find(|function| function.virtio_type() == Some(FILE_SYSTEM));
    let function = function.ok_or("the PCI bus has no virtio file system")?;
    assign_bars(&function, &mut host.memory.clone().map(FreeAddresses::new))?;
    let map = |range: BarRange| memory::registers(range.address, range.len_bytes);
    Ok(Pci::new(&function, map, Interrupts::Polling)?)
}
