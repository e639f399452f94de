//! Functions on the PCI bus, for a kernel that has no bus driver.
//!
//! [`ConfigAccess`] is access to the configuration of every function: [`Ecam`], or what else the machine has.
//! [`functions`] finds them. Where firmware has not assigned addresses, [`assign_bars`](super::assign_bars) does.
//! Bridges are not set up: functions on their other side are found only if firmware has numbered the buses there.

use core::ops::RangeInclusive;

use super::{ConfigSpace, DEVICE_MIN, VENDOR};
use crate::transport::Registers;

/// Legacy and transitional devices (virtio 1.3, section 4.1.2), whose subsystem id is their type.
const TRANSITIONAL_MIN: u32 = 0x1000;
const SUBSYSTEM_AT: u8 = 0x2c;
/// The word with the kind of the header, and its bit for a device with several functions.
const HEADER_AT: u8 = 0x0c;
const HAS_FUNCTIONS: u32 = 1 << 23;

/// Where a function is on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

/// Access to the configuration of all functions, by words at multiples of four below 256.
pub trait ConfigAccess {
    /// Reads a word; all ones if there is no function.
    fn read_u32(&self, place: Place, offset_bytes: u8) -> u32;

    /// Writes a word.
    fn write_u32(&self, place: Place, offset_bytes: u8, value: u32);
}

/// Configuration by memory accesses: the "enhanced configuration access mechanism", with 1 MiB for each bus.
///
/// A device tree has it as `pci-host-ecam-generic` ([`Fdt::pci_host`](crate::transport::fdt::Fdt::pci_host)), ACPI in
/// the table MCFG. Source: PCI Express Base 5.0, section 7.2.2.
#[derive(Debug)]
pub struct Ecam<R>(R);

impl<R: Registers> Ecam<R> {
    /// Uses these registers, which begin with bus 0. Buses beyond their end have no functions.
    pub fn new(registers: R) -> Self {
        Self(registers)
    }

    fn at(place: Place, offset_bytes: u8) -> usize {
        let Place { bus, device, function } = place;
        let place = usize::from(bus) << 20 | usize::from(device & 31) << 15 | usize::from(function & 7) << 12;
        place | usize::from(offset_bytes & !3)
    }
}

impl<R: Registers> ConfigAccess for Ecam<R> {
    fn read_u32(&self, place: Place, offset_bytes: u8) -> u32 {
        self.0.read_u32(Self::at(place, offset_bytes))
    }

    fn write_u32(&self, place: Place, offset_bytes: u8, value: u32) {
        self.0.write_u32(Self::at(place, offset_bytes), value);
    }
}

/// A function's configuration space.
pub struct Function<'a, A: ?Sized> {
    access: &'a A,
    place: Place,
}

impl<'a, A: ConfigAccess + ?Sized> Function<'a, A> {
    /// Returns the function at `place`, or `None` if nothing is there.
    pub fn at(access: &'a A, place: Place) -> Option<Self> {
        let function = Self { access, place };
        // A vendor of all ones is what a bus returns for nothing.
        (function.read_u32(0) & 0xffff != 0xffff).then_some(function)
    }

    /// Returns where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the type of the virtio device, or `None` if it is another device. A device that has the legacy interface
    /// too has a type as well.
    pub fn virtio_type(&self) -> Option<u32> {
        let identity = self.read_u32(0);
        match (identity & 0xffff, identity >> 16) {
            (VENDOR, id @ DEVICE_MIN..) => Some(id - DEVICE_MIN),
            (VENDOR, TRANSITIONAL_MIN..) => Some(self.read_u32(SUBSYSTEM_AT) >> 16),
            _ => None,
        }
    }
}

impl<A: ConfigAccess + ?Sized> ConfigSpace for Function<'_, A> {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        self.access.read_u32(self.place, offset_bytes)
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        self.access.write_u32(self.place, offset_bytes, value);
    }
}

/// Returns the functions on these buses, in the order of their places.
pub fn functions<A: ConfigAccess + ?Sized>(
    access: &A,
    buses: RangeInclusive<u8>,
) -> impl Iterator<Item = Function<'_, A>> {
    let devices = buses.flat_map(|bus| (0..32).map(move |device| Place { bus, device, function: 0 }));
    devices.flat_map(move |place| {
        let has_functions = |first: Function<'_, A>| first.read_u32(HEADER_AT) & HAS_FUNCTIONS != 0;
        let count = Function::at(access, place).map_or(0, |first| if has_functions(first) { 8 } else { 1 });
        (0..count).filter_map(move |function| Function::at(access, Place { function, ..place }))
    })
}
