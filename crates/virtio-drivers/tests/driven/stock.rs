//! A transport as a kernel implements it for virtio-drivers, to the fake device.

use std::sync::Arc;

use transom_guest::transport::{QueueAddresses, Transport as _};
use virtio_drivers::{
    Error, PhysAddr,
    transport::{DeviceStatus, DeviceType, InterruptStatus, Transport},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::fake::{Fake, FakeTransport};

pub(crate) struct Stock {
    device: FakeTransport,
    running: [bool; 8],
    is_legacy: bool,
    is_absent: bool,
}

impl Stock {
    pub(crate) fn new(fake: &Arc<Fake>) -> Self {
        Self { device: FakeTransport(Arc::clone(fake)), running: [false; 8], is_legacy: false, is_absent: false }
    }

    pub(crate) fn legacy(self) -> Self {
        Self { is_legacy: true, ..self }
    }

    /// Reads as all ones.
    pub(crate) fn absent(self) -> Self {
        Self { is_absent: true, ..self }
    }
}

impl Transport for Stock {
    /// virtio-drivers has no name for a file system.
    fn device_type(&self) -> DeviceType {
        DeviceType::Block
    }

    fn read_device_features(&mut self) -> u64 {
        self.device.device_features().unwrap()
    }

    fn write_driver_features(&mut self, features: u64) {
        self.device.set_driver_features(features).unwrap();
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.device.queue_len_max(queue).unwrap().into()
    }

    fn notify(&mut self, queue: u16) {
        self.device.notify(queue);
    }

    fn get_status(&self) -> DeviceStatus {
        let status = if self.is_absent { 0xff } else { self.device.status().unwrap() };
        DeviceStatus::from_bits_truncate(status.into())
    }

    fn set_status(&mut self, status: DeviceStatus) {
        if status.is_empty() {
            self.device.reset().unwrap();
            self.running = [false; 8];
        }
        self.device.add_status(status.bits() as u8).unwrap();
    }

    fn set_guest_page_size(&mut self, _: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        self.is_legacy
    }

    fn queue_set(&mut self, queue: u16, size: u32, descriptors: PhysAddr, available: PhysAddr, used: PhysAddr) {
        self.device.start_queue(queue, size as u16, QueueAddresses { descriptors, available, used }).unwrap();
        self.running[usize::from(queue)] = true;
    }

    fn queue_unset(&mut self, _: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.running[usize::from(queue)]
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::empty()
    }

    fn read_config_generation(&self) -> u32 {
        0
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        let mut bytes = vec![0; size_of::<T>()];
        self.device.read_config(offset, &mut bytes).unwrap();
        T::read_from_bytes(&bytes).map_err(|_| Error::ConfigSpaceTooSmall)
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, _: usize, _: T) -> Result<(), Error> {
        Err(Error::Unsupported)
    }
}
