//! File systems on a PCI bus that virtio-drivers enumerates.

use core::cell::RefCell;

use lock_api::RawMutex;
use transom_guest::transport::{
    Interrupts, TransportError, VolatileRegisters,
    pci::{ConfigSpace, Msix, Pci},
};
use virtio_drivers::{
    Hal,
    transport::pci::{
        VIRTIO_VENDOR_ID,
        bus::{ConfigurationAccess, DeviceFunction, DeviceFunctionInfo, PciRoot},
    },
};

use crate::registers::map;

/// The PCI device id of a virtio file system: 0x1040 and its type, 26 (virtio 1.3 §4.1.2).
const DEVICE_ID: u16 = 0x1040 + 26;

/// Returns whether a function is a virtio file system.
pub fn is_file_system(info: &DeviceFunctionInfo) -> bool {
    (info.vendor_id, info.device_id) == (VIRTIO_VENDOR_ID, DEVICE_ID)
}

/// Returns the first file system on a bus.
pub fn find<C: ConfigurationAccess>(root: &PciRoot<C>, bus: u8) -> Option<DeviceFunction> {
    root.enumerate_bus(bus).find(|(_, info)| is_file_system(info)).map(|(function, _)| function)
}

/// A PCI function, reached as the kernel does for virtio-drivers.
#[derive(Debug)]
pub struct Function<C> {
    access: RefCell<C>,
    function: DeviceFunction,
}

impl<C: ConfigurationAccess> Function<C> {
    /// Uses the configuration of `function`, whose BARs have their addresses.
    pub fn new(access: C, function: DeviceFunction) -> Self {
        Self { access: RefCell::new(access), function }
    }

    /// Returns the transport to the device, whose registers `H` maps. See [`Pci::new`].
    pub fn open<H: Hal, L: RawMutex>(
        &self,
        interrupts: Interrupts,
    ) -> Result<Pci<VolatileRegisters, L>, TransportError> {
        Pci::new(self, map::<H>, interrupts)
    }

    /// Returns the function's table of MSI-X messages, if it has one; to be set up before [`Self::open`].
    pub fn messages<H: Hal>(&self) -> Result<Option<Msix<VolatileRegisters>>, TransportError> {
        Msix::new(self, map::<H>)
    }
}

impl<C: ConfigurationAccess> ConfigSpace for Function<C> {
    fn read_u32(&self, offset_bytes: u8) -> u32 {
        self.access.borrow().read_word(self.function, offset_bytes)
    }

    fn write_u32(&self, offset_bytes: u8, value: u32) {
        self.access.borrow_mut().write_word(self.function, offset_bytes, value);
    }
}
