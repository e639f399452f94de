//! A virtio device in memory: virtio-mmio, version 2.
//!
//! [`Mmio`] drives it through [`Registers`]. Registers that a selector multiplexes are accessed under `selector`, a
//! lock for short sections; notifications and waits take no lock. Source: virtio 1.3 §4.2.

use lock_api::{Mutex, RawMutex};

use super::{
    QueueAddresses, Registers, ShmRegion, Transport, TransportError, checks,
    interrupts::{Interrupts, OneInterrupt},
    registers::read_fields,
};

/// Offsets of the registers (§4.2.2, table 4.1).
mod at {
    pub(super) const MAGIC: usize = 0x000;
    pub(super) const VERSION: usize = 0x004;
    pub(super) const DEVICE_ID: usize = 0x008;
    pub(super) const DEVICE_FEATURES: usize = 0x010;
    pub(super) const DEVICE_FEATURES_SEL: usize = 0x014;
    pub(super) const DRIVER_FEATURES: usize = 0x020;
    pub(super) const DRIVER_FEATURES_SEL: usize = 0x024;
    pub(super) const QUEUE_SEL: usize = 0x030;
    pub(super) const QUEUE_SIZE_MAX: usize = 0x034;
    pub(super) const QUEUE_SIZE: usize = 0x038;
    pub(super) const QUEUE_READY: usize = 0x044;
    pub(super) const QUEUE_NOTIFY: usize = 0x050;
    pub(super) const INTERRUPT_STATUS: usize = 0x060;
    pub(super) const INTERRUPT_ACK: usize = 0x064;
    pub(super) const STATUS: usize = 0x070;
    pub(super) const QUEUE_DESC: usize = 0x080;
    pub(super) const QUEUE_DRIVER: usize = 0x090;
    pub(super) const QUEUE_DEVICE: usize = 0x0a0;
    pub(super) const SHM_SEL: usize = 0x0ac;
    pub(super) const SHM_LEN: usize = 0x0b0;
    pub(super) const SHM_BASE: usize = 0x0b8;
    pub(super) const CONFIG_GENERATION: usize = 0x0fc;
    pub(super) const CONFIG: usize = 0x100;
}

/// "virt", as the first register reads.
const MAGIC: u32 = 0x7472_6976;

/// A memory-mapped device.
pub struct Mmio<R, L: RawMutex> {
    registers: R,
    /// Held while a selector, and what it selects, is in use.
    selector: Mutex<L, ()>,
    interrupt: OneInterrupt,
    device_type: u32,
}

impl<R: Registers, L: RawMutex> Mmio<R, L> {
    /// Creates a driver for the device behind `registers`. Only reads registers that identify the device.
    ///
    /// A memory-mapped device has one interrupt: of [`Interrupts::Messages`], vector 0 is used. Errors: these are
    /// not registers of virtio-mmio; [`TransportError::Absent`] if no device is attached (`DeviceID` 0);
    /// [`TransportError::Legacy`] if it has version 1; it has another version.
    pub fn new(registers: R, interrupts: Interrupts) -> Result<Self, TransportError> {
        if registers.len_bytes() < at::CONFIG {
            return Err(TransportError::Broken("its registers are shorter than 256 bytes"));
        }
        if registers.read_u32(at::MAGIC) != MAGIC {
            return Err(TransportError::Lacks("the magic value of virtio-mmio"));
        }
        let device_type = registers.read_u32(at::DEVICE_ID);
        match registers.read_u32(at::VERSION) {
            1 | 2 if device_type == 0 => return Err(TransportError::Absent),
            1 => return Err(TransportError::Legacy { device_type }),
            2 => {}
            _ => return Err(TransportError::Lacks("version 2 of virtio-mmio")),
        }
        Ok(Self { registers, selector: Mutex::new(()), interrupt: OneInterrupt::new(interrupts), device_type })
    }

    /// Acknowledges the device's interrupt and returns its causes, for a kernel whose handler must silence the line
    /// before it returns. [`Transport::wait`] also does it.
    pub fn acknowledge(&self) -> u32 {
        let causes = self.registers.read_u32(at::INTERRUPT_STATUS);
        if causes != 0 {
            self.registers.write_u32(at::INTERRUPT_ACK, causes);
        }
        causes
    }

    /// Reads a 64-bit number from two registers, the lower half first.
    fn read_u64(&self, offset: usize) -> u64 {
        u64::from(self.registers.read_u32(offset)) | u64::from(self.registers.read_u32(offset + 4)) << 32
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.registers.write_u32(offset, value as u32);
        self.registers.write_u32(offset + 4, (value >> 32) as u32);
    }

    /// Returns the maximum length of the selected queue, a power of two; `selector` is held.
    fn selected_len_max(&self) -> Result<u16, TransportError> {
        match self.registers.read_u32(at::QUEUE_SIZE_MAX) {
            u32::MAX => Err(TransportError::Gone),
            len_max => checks::queue_len_from_device(len_max),
        }
    }
}

impl<R: Registers, L: RawMutex + Send + Sync> Transport for Mmio<R, L> {
    fn device_type(&self) -> u32 {
        self.device_type
    }

    fn status(&self) -> Result<u8, TransportError> {
        match self.registers.read_u32(at::STATUS) {
            u32::MAX => Err(TransportError::Gone),
            status => Ok(status as u8),
        }
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        let _held = self.selector.lock();
        let status = self.status()?;
        self.registers.write_u32(at::STATUS, u32::from(status | bits));
        Ok(())
    }

    fn reset(&self) -> Result<(), TransportError> {
        let _held = self.selector.lock();
        self.registers.write_u32(at::STATUS, 0);
        checks::wait_for_reset(|| self.status())
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        let _held = self.selector.lock();
        let half = |index| {
            self.registers.write_u32(at::DEVICE_FEATURES_SEL, index);
            u64::from(self.registers.read_u32(at::DEVICE_FEATURES))
        };
        let features = half(0) | half(1) << 32;
        self.status().map(|_| features)
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        let _held = self.selector.lock();
        for (index, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.registers.write_u32(at::DRIVER_FEATURES_SEL, index);
            self.registers.write_u32(at::DRIVER_FEATURES, half);
        }
        self.status().map(|_| ())
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let start = checks::config_start(at::CONFIG, offset_bytes, bytes.len(), self.registers.len_bytes())?;
        let generation = || self.registers.read_u32(at::CONFIG_GENERATION);
        checks::read_settled(generation, || read_fields(&self.registers, start, bytes))?;
        self.status().map(|_| ())
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        let _held = self.selector.lock();
        self.registers.write_u32(at::QUEUE_SEL, queue.into());
        self.selected_len_max()
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let _held = self.selector.lock();
        self.registers.write_u32(at::QUEUE_SEL, queue.into());
        checks::check_queue_len(len, self.selected_len_max()?)?;
        if self.registers.read_u32(at::QUEUE_READY) != 0 {
            return Err(TransportError::Broken("a queue runs before it is started"));
        }
        self.registers.write_u32(at::QUEUE_SIZE, len.into());
        self.write_u64(at::QUEUE_DESC, addresses.descriptors);
        self.write_u64(at::QUEUE_DRIVER, addresses.available);
        self.write_u64(at::QUEUE_DEVICE, addresses.used);
        self.registers.write_u32(at::QUEUE_READY, 1);
        match self.registers.read_u32(at::QUEUE_READY) {
            1 => Ok(()),
            u32::MAX => Err(TransportError::Gone),
            _ => Err(TransportError::Broken("a queue that was started does not run")),
        }
    }

    fn notify(&self, queue: u16) {
        self.registers.write_u32(at::QUEUE_NOTIFY, queue.into());
    }

    fn notifications(&self, _queue: u16) -> u64 {
        self.interrupt.count()
    }

    fn wait(&self, _queue: u16, seen: u64, deadline_ns: Option<u64>) -> Result<(), TransportError> {
        self.interrupt.wait(seen, deadline_ns, || self.acknowledge(), || self.status())
    }

    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        let _held = self.selector.lock();
        self.registers.write_u32(at::SHM_SEL, id.into());
        let (len_bytes, address) = (self.read_u64(at::SHM_LEN), self.read_u64(at::SHM_BASE));
        // An absent region reads as all ones (§4.2.2); devices that predate regions read as 0.
        if len_bytes == u64::MAX || len_bytes == 0 {
            return self.status().map(|_| None);
        }
        match address.checked_add(len_bytes) {
            Some(_) => Ok(Some(ShmRegion { address, len_bytes })),
            None => Err(TransportError::Broken("a shared memory region ends beyond all addresses")),
        }
    }
}
