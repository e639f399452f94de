//! Virtio file systems on the PCI bus, by the library's helpers.

use alloc::format;
use core::ops::RangeInclusive;

use transom_guest::transport::{
    Interrupts, TransportError, VolatileRegisters,
    pci::{BarRange, ConfigAccess, ConfigSpace, Function, Pci, functions},
};

use super::{FILE_SYSTEM, Found, lock::RawLock, memory};

/// The buses that are searched: nothing here is behind a bridge.
const BUSES: RangeInclusive<u8> = 0..=0;

/// Returns the first file system, and adds virtio devices before it to `found`.
pub(super) fn find<'a, A: ConfigAccess>(access: &'a A, found: &mut Found) -> Option<Function<'a, A>> {
    for function in functions(access, BUSES) {
        match function.virtio_type() {
            Some(FILE_SYSTEM) => return Some(function),
            Some(other) => found.add_other(other, &format!("is PCI device {}", function.place().device)),
            None => {}
        }
    }
    None
}

/// Returns a function's transport.
pub(super) fn open(
    function: &dyn ConfigSpace,
    interrupts: Interrupts,
) -> Result<Pci<VolatileRegisters, RawLock>, TransportError> {
    Pci::new(function, map, interrupts)
}

/// Returns the registers at a part of a BAR.
pub(super) fn map(range: BarRange) -> Result<VolatileRegisters, TransportError> {
    memory::registers(range.address, range.len_bytes)
}
