//! What a kernel that has the crate virtio-drivers writes for a file system: this file is all of it.
//!
//! [`Hal`] and [`ConfigurationAccess`] are such a kernel's own; it has them for its other devices.

#![expect(unsafe_code, reason = "a Hal hands out memory by address")]

use alloc::{string::String, sync::Arc, vec, vec::Vec};
use core::ptr::NonNull;

use transom_guest::{
    cache::CacheOptions,
    device::{Settings, VirtioFs},
    dma::{DirectMemory as _, DmaChoice, DmaMemory},
    fs::Fs,
    session::{Session, SessionConfig},
    transport::Interrupts,
};
use transom_virtio_drivers::{Function, HalMemory, find};
use virtio_drivers::{
    BufferDirection, Hal, PAGE_SIZE, PhysAddr,
    transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot},
};

use super::{
    IDENTITY_LEN,
    devices::{CONFIG_ADDRESS, CONFIG_DATA, ENABLED},
    ports,
};
use crate::bare::{Failure, console::say, lock::RawLock, memory::Identity, platform::Bare};

/// The kernel's memory, at the same addresses for devices.
struct Memory;

// SAFETY: memory comes from the kernel's heap, zeroed and aligned; registers are mapped to themselves for good.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let memory = Identity.allocate(pages * PAGE_SIZE);
        memory.map_or((0, NonNull::dangling()), |memory| (memory.address(), memory.start()))
    }

    unsafe fn dma_dealloc(address: PhysAddr, start: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: `dma_alloc` had this memory from `Identity`, and the caller no longer uses it.
        Identity.free(unsafe { DmaMemory::new(start, pages * PAGE_SIZE, address) });
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, len: usize) -> NonNull<u8> {
        let end = address.checked_add(len as u64);
        assert!(end.is_some_and(|end| end <= IDENTITY_LEN), "registers at {address:#x}, which is not mapped");
        NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().as_ptr() as u64
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The configuration of PCI functions, by I/O ports.
struct Ports;

impl Ports {
    fn choose(function: DeviceFunction, offset: u8) {
        let DeviceFunction { bus, device, function } = function;
        let place = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
        ports::write_u32(CONFIG_ADDRESS, ENABLED | place | u32::from(offset & !3));
    }
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, function: DeviceFunction, offset: u8) -> u32 {
        Self::choose(function, offset);
        ports::read_u32(CONFIG_DATA)
    }

    fn write_word(&mut self, function: DeviceFunction, offset: u8, value: u32) {
        Self::choose(function, offset);
        ports::write_u32(CONFIG_DATA, value);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// Mounts the first file system on the PCI bus.
fn mount(platform: &Arc<Bare>) -> Result<Fs<Bare>, Failure> {
    let place = find(&PciRoot::new(Ports), 0).ok_or("virtio-drivers finds no file system on the PCI bus")?;
    let transport = Function::new(Ports, place).open::<Memory, RawLock>(Interrupts::Polling)?;
    let dma = DmaChoice::always(Arc::new(HalMemory::<Memory>::new()));
    let device = VirtioFs::new(transport, Arc::clone(platform), &dma, Settings::default())?;
    let session = Session::begin(Arc::new(device), Arc::clone(platform), SessionConfig::default())?;
    Ok(Fs::mount(session, CacheOptions::default()))
}

/// Lists the root directory and reads a file.
pub(super) fn run(platform: &Arc<Bare>) -> Result<(), Failure> {
    let fs = mount(platform)?;
    let mut names = Vec::new();
    for entry in fs.read_dir("/")? {
        names.push(String::from_utf8_lossy(&entry?.name).into_owned());
    }
    names.sort();
    let file = fs.open_read("input")?;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    let len = file.read_at(0, &mut bytes)?;
    bytes.truncate(len);
    file.close()?;
    let sum = bytes.iter().fold(0u64, |sum, &byte| sum + u64::from(byte));
    fs.unmount()?;
    say!("ok: virtio-drivers' Hal and PCI access: {} bytes of sum {sum} among {names:?}", bytes.len());
    Ok(())
}
