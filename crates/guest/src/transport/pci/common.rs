//! The common configuration of a virtio device on the PCI bus (virtio 1.3 §4.1.4.3).

use crate::transport::{QueueAddresses, Registers, TransportError, checks};

/// Offsets within `struct virtio_pci_common_cfg`.
mod at {
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0;
    pub(super) const DEVICE_FEATURE: usize = 4;
    pub(super) const DRIVER_FEATURE_SELECT: usize = 8;
    pub(super) const DRIVER_FEATURE: usize = 12;
    pub(super) const NUM_QUEUES: usize = 18;
    pub(super) const DEVICE_STATUS: usize = 20;
    pub(super) const CONFIG_GENERATION: usize = 21;
    pub(super) const QUEUE_SELECT: usize = 22;
    pub(super) const QUEUE_SIZE: usize = 24;
    pub(super) const QUEUE_MSIX_VECTOR: usize = 26;
    pub(super) const QUEUE_ENABLE: usize = 28;
    pub(super) const QUEUE_NOTIFY_OFF: usize = 30;
    pub(super) const QUEUE_DESC: usize = 32;
    pub(super) const QUEUE_DRIVER: usize = 40;
    pub(super) const QUEUE_DEVICE: usize = 48;
}

/// Length of the structure in virtio 1.0; fields that later versions appended are not used.
const LEN: usize = 56;

/// The value of a vector that the device could not set up (§4.1.5.1.2).
const NO_VECTOR: u16 = 0xffff;

/// An impossible status: absent devices read as all ones.
const GONE: u8 = 0xff;

/// The common configuration. Code with a reference to it holds the lock around it.
pub(super) struct Common<R> {
    registers: R,
}

/// The fields of one queue, while that queue is selected.
pub(super) struct SelectedQueue<'a, R> {
    registers: &'a R,
}

impl<R: Registers> Common<R> {
    /// Errors: the registers are too short, or there is no device.
    pub(super) fn new(registers: R) -> Result<Self, TransportError> {
        if registers.len_bytes() < LEN {
            return Err(TransportError::Broken("its common configuration is shorter than 56 bytes"));
        }
        let common = Self { registers };
        common.status()?;
        Ok(common)
    }

    /// Returns the number of queues that the device reports.
    pub(super) fn queues(&self) -> u16 {
        self.registers.read_u16(at::NUM_QUEUES)
    }

    pub(super) fn status(&self) -> Result<u8, TransportError> {
        match self.registers.read_u8(at::DEVICE_STATUS) {
            GONE => Err(TransportError::Gone),
            status => Ok(status),
        }
    }

    pub(super) fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        let status = self.status()?;
        self.registers.write_u8(at::DEVICE_STATUS, status | bits);
        Ok(())
    }

    pub(super) fn reset(&self) -> Result<(), TransportError> {
        self.registers.write_u8(at::DEVICE_STATUS, 0);
        checks::wait_for_reset(|| self.status())
    }

    pub(super) fn device_features(&self) -> Result<u64, TransportError> {
        let half = |index| {
            self.registers.write_u32(at::DEVICE_FEATURE_SELECT, index);
            u64::from(self.registers.read_u32(at::DEVICE_FEATURE))
        };
        let features = half(0) | half(1) << 32;
        self.status().map(|_| features)
    }

    pub(super) fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        for (index, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.registers.write_u32(at::DRIVER_FEATURE_SELECT, index);
            self.registers.write_u32(at::DRIVER_FEATURE, half);
        }
        self.status().map(|_| ())
    }

    pub(super) fn generation(&self) -> u8 {
        self.registers.read_u8(at::CONFIG_GENERATION)
    }

    /// Returns the maximum length of the queue, a power of two, or 0 if there is no such queue.
    pub(super) fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        self.registers.write_u16(at::QUEUE_SELECT, queue);
        let len_max = self.registers.read_u16(at::QUEUE_SIZE);
        self.status()?;
        checks::queue_len_from_device(len_max.into())
    }

    /// Selects a queue that is not running yet.
    pub(super) fn select(&mut self, queue: u16) -> Result<SelectedQueue<'_, R>, TransportError> {
        self.registers.write_u16(at::QUEUE_SELECT, queue);
        match self.registers.read_u16(at::QUEUE_ENABLE) {
            0 => Ok(SelectedQueue { registers: &self.registers }),
            _ => Err(TransportError::Broken("a queue runs before it is started")),
        }
    }
}

impl<R: Registers> SelectedQueue<'_, R> {
    /// Returns the queue's notification offset, in units of the structure's multiplier.
    pub(super) fn notify_off(&self) -> u16 {
        self.registers.read_u16(at::QUEUE_NOTIFY_OFF)
    }

    /// Gives the queue the first of `vectors` that the device can set up.
    pub(super) fn set_vector(&mut self, vectors: [u16; 2]) -> Result<u16, TransportError> {
        for vector in vectors {
            self.registers.write_u16(at::QUEUE_MSIX_VECTOR, vector);
            match self.registers.read_u16(at::QUEUE_MSIX_VECTOR) {
                NO_VECTOR => {}
                set if set == vector => return Ok(vector),
                _ => return Err(TransportError::Broken("a queue has another vector than it was given")),
            }
        }
        Err(TransportError::Lacks("an interrupt vector for a queue"))
    }

    /// Gives the device the queue and starts it.
    pub(super) fn start(&mut self, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        self.registers.write_u16(at::QUEUE_SIZE, len);
        self.write_u64(at::QUEUE_DESC, addresses.descriptors);
        self.write_u64(at::QUEUE_DRIVER, addresses.available);
        self.write_u64(at::QUEUE_DEVICE, addresses.used);
        self.registers.write_u16(at::QUEUE_ENABLE, 1);
        match self.registers.read_u16(at::QUEUE_ENABLE) {
            1 => Ok(()),
            u16::MAX => Err(TransportError::Gone),
            _ => Err(TransportError::Broken("a queue that was started does not run")),
        }
    }

    /// 64-bit fields may be written in halves (§4.1.3.1).
    fn write_u64(&self, offset: usize, value: u64) {
        self.registers.write_u32(offset, value as u32);
        self.registers.write_u32(offset + 4, (value >> 32) as u32);
    }
}
