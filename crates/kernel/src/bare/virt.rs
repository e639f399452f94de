//! QEMU's `virt` machines: file systems behind virtio-mmio and on the PCI bus, found through the device tree.

#![expect(unsafe_code, reason = "the loader leaves the device tree at an address")]

use alloc::{boxed::Box, format, sync::Arc};
use core::{ptr, slice};

use transom_guest::transport::{
    Interrupts, Transport as _, TransportError, VolatileRegisters,
    fdt::{Fdt, MmioDevice},
    mmio::Mmio,
};

use super::{
    FILE_SYSTEM, Failure, Found, arch,
    console::say,
    dma_cost,
    interrupts::Wakes,
    jobs,
    lock::RawLock,
    memory,
    parallel::{self, Queues},
    platform::Bare,
    processors, scenario,
    share::{Share, Wait},
    virt_pci,
};

/// Uses every file system of the machine whose device tree begins at `tree`.
///
/// # Safety
/// At `tree`, the loader has left a device tree, or there is other memory that may be read and that never changes.
pub(super) unsafe fn run(tree: usize, platform: &Arc<Bare>) -> Result<Found, Failure> {
    let mut header = [0; 8];
    // SAFETY: the caller guarantees that there is memory to read.
    unsafe { ptr::copy_nonoverlapping(tree as *const u8, header.as_mut_ptr(), header.len()) };
    let len_bytes = Fdt::len_bytes(&header)?;
    // SAFETY: a device tree has the length that its header says, and never changes.
    let blob = unsafe { slice::from_raw_parts(tree as *const u8, len_bytes) };
    let mut found = Found::default();
    let tree = Fdt::new(blob)?;
    let has_messages = arch::begin_messages(&tree)?;
    for place in tree.virtio_mmio() {
        let place = place?;
        let device = match open(place, Interrupts::Polling) {
            Ok(device) => device,
            Err(TransportError::Absent) => continue,
            Err(TransportError::Legacy { device_type }) if device_type != FILE_SYSTEM => {
                found.add_other(device_type, &format!("is at {:#x}", place.address));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if device.device_type() != FILE_SYSTEM {
            found.add_other(device.device_type(), &format!("is at {:#x}", place.address));
            continue;
        }
        say!("a file system behind virtio-mmio at {:#x}, from the device tree", place.address);
        let share = Share::mount(device, platform, Wait::Polling)?;
        scenario::run(share.fs())?;
        dma_cost::count(&share)?;
        share.unmount()?;
        use_line(place, platform)?;
        found.file_systems += 1;
    }
    if let Some(host) = tree.pci_host()? {
        virt_pci::run(&host, platform, has_messages, &mut found)?;
    }
    Ok(found)
}

/// Uses the file system at `place` by its line: on one processor, then on two.
fn use_line(place: MmioDevice, platform: &Arc<Bare>) -> Result<(), Failure> {
    if !arch::has_lines() {
        return Err("no controller for lines that the kernel knows: put the device on the PCI bus".into());
    }
    let line = place.interrupt.ok_or("the device tree does not say which line the device has")?;
    arch::use_line(line);
    let mount = || -> Result<Share, Failure> {
        let device = open(place, Interrupts::Line(Box::new(Wakes)))?;
        Share::mount(device, platform, Wait::Sleeping)
    };
    let share = mount()?;
    share.use_until_woken("a line", 0)?;
    share.unmount()?;
    if processors::running() > 1 || jobs::start_second()? {
        let share = mount()?;
        parallel::run(&share, "a line", Queues::Own)?;
        share.unmount()?;
    }
    Ok(())
}

/// Returns the device at `place`.
fn open(place: MmioDevice, interrupts: Interrupts) -> Result<Mmio<VolatileRegisters, RawLock>, TransportError> {
    Mmio::new(memory::registers(place.address, place.len_bytes)?, interrupts)
}
