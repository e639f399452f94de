//! Registers of a device at addresses that the kernel has mapped.

#![expect(unsafe_code, reason = "registers are reached by address")]

use core::ptr::NonNull;

use lock_api::RawMutex;
use transom_guest::transport::{Interrupts, TransportError, VolatileRegisters, mmio::Mmio, pci::BarRange};
use virtio_drivers::{Hal, transport::mmio::VirtIOHeader};

/// Creates the transport of a virtio-mmio device; the arguments are those of virtio-drivers' `MmioTransport::new`.
///
/// Errors: those of [`Mmio::new`], or `header` is not a multiple of 4.
///
/// # Safety
/// All of `header..header + mmio_size` is memory of one device, mapped uncached for reading and writing for as long as
/// the transport lives, and no Rust reference points into it.
pub unsafe fn open_mmio<L: RawMutex>(
    header: NonNull<VirtIOHeader>,
    mmio_size: usize,
    interrupts: Interrupts,
) -> Result<Mmio<VolatileRegisters, L>, TransportError> {
    // SAFETY: as the caller promises.
    let registers = unsafe { registers(header.cast(), mmio_size) }?;
    Mmio::new(registers, interrupts)
}

/// Maps a part of a BAR.
pub(crate) fn map<H: Hal>(range: BarRange) -> Result<VolatileRegisters, TransportError> {
    let len_bytes = usize::try_from(range.len_bytes)
        .map_err(|_| TransportError::Broken("its registers are longer than the address space"))?;
    // SAFETY: the range lies within a BAR as the kernel's own bus driver has assigned it, which is what `Hal` requires
    // of an address of registers. Every `Hal` returns memory that is mapped for good and that nothing else uses.
    unsafe { registers(H::mmio_phys_to_virt(range.address, len_bytes), len_bytes) }
}

/// # Safety
/// As for [`VolatileRegisters::new`], except for the alignment.
unsafe fn registers(start: NonNull<u8>, len_bytes: usize) -> Result<VolatileRegisters, TransportError> {
    if !start.addr().get().is_multiple_of(4) {
        return Err(TransportError::Broken("its registers are not at a multiple of 4"));
    }
    // SAFETY: checked for the alignment; the caller promises the rest.
    Ok(unsafe { VolatileRegisters::new(start, len_bytes) })
}
