//! A transport of the kernel's own, which implements virtio-drivers' trait.

use lock_api::{Mutex, RawMutex};
use transom_guest::transport::{
    Interrupts, OneInterrupt, QueueAddresses, ShmRegion, Transport, TransportError, checks,
};
use virtio_drivers::transport::{self, DeviceStatus};

/// The virtio device type of a file system, for which virtio-drivers has no name.
const FILE_SYSTEM: u32 = 26;

/// A file system behind a [`Transport`](transport::Transport) of virtio-drivers.
///
/// The trait's methods take `&mut self`, so all of them, notifications too, are called under a lock. It has no shared
/// memory regions: a device that has a window is better reached by [`Function`](crate::Function).
pub struct Driven<T, L: RawMutex> {
    transport: Mutex<L, T>,
    interrupt: OneInterrupt,
}

impl<T: transport::Transport, L: RawMutex> Driven<T, L> {
    /// Uses a device that the caller knows to be a file system: the trait cannot say so.
    ///
    /// The trait knows one interrupt: of [`Interrupts::Messages`], vector 0 is used. Errors: the device has the layout
    /// of before virtio 1.0.
    pub fn new(transport: T, interrupts: Interrupts) -> Result<Self, TransportError> {
        if transport.requires_legacy_layout() {
            return Err(TransportError::Legacy { device_type: FILE_SYSTEM });
        }
        Ok(Self { transport: Mutex::new(transport), interrupt: OneInterrupt::new(interrupts) })
    }

    /// Acknowledges the device's interrupt and returns its causes, for a kernel whose handler must silence the line
    /// before it returns. [`Transport::wait`] also does it.
    ///
    /// Takes the lock of the transport. If a handler calls it, `L` must keep interrupts off while it is held; otherwise
    /// the handler may wait for the thread that it interrupted.
    pub fn acknowledge(&self) -> u32 {
        self.transport.lock().ack_interrupt().bits()
    }
}

impl<T: transport::Transport + Send, L: RawMutex + Send + Sync> Transport for Driven<T, L> {
    fn device_type(&self) -> u32 {
        FILE_SYSTEM
    }

    fn status(&self) -> Result<u8, TransportError> {
        match self.transport.lock().get_status() {
            // Absent devices read as all ones, of which virtio-drivers keeps those that have a name.
            status if status.is_all() => Err(TransportError::Gone),
            status => Ok(status.bits() as u8),
        }
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        let mut transport = self.transport.lock();
        let status = transport.get_status() | DeviceStatus::from_bits_retain(bits.into());
        transport.set_status(status);
        Ok(())
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.transport.lock().set_status(DeviceStatus::empty());
        checks::wait_for_reset(|| self.status())
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        Ok(self.transport.lock().read_device_features())
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        self.transport.lock().write_driver_features(features);
        Ok(())
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let transport = self.transport.lock();
        let mut read = Ok(());
        checks::read_settled(
            || transport.read_config_generation(),
            || {
                for (byte, offset) in bytes.iter_mut().zip(offset_bytes..) {
                    match transport.read_config_space(offset) {
                        Ok(value) => *byte = value,
                        Err(error) => read = Err(error),
                    }
                }
            },
        )?;
        read.map_err(|_| TransportError::Lacks("as much configuration space as the driver reads"))
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        checks::queue_len_from_device(self.transport.lock().max_queue_size(queue))
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let QueueAddresses { descriptors, available, used } = addresses;
        checks::check_queue_len(len, self.queue_len_max(queue)?)?;
        let mut transport = self.transport.lock();
        if transport.queue_used(queue) {
            return Err(TransportError::Broken("a queue runs before it is started"));
        }
        transport.queue_set(queue, len.into(), descriptors, available, used);
        if transport.queue_used(queue) {
            Ok(())
        } else {
            Err(TransportError::Broken("a queue that was started does not run"))
        }
    }

    fn notify(&self, queue: u16) {
        self.transport.lock().notify(queue);
    }

    fn notifications(&self, _queue: u16) -> u64 {
        self.interrupt.count()
    }

    fn wait(&self, _queue: u16, seen: u64, deadline_ns: Option<u64>) -> Result<(), TransportError> {
        self.interrupt.wait(seen, deadline_ns, || self.acknowledge(), || self.status())
    }

    fn shm_region(&self, _id: u8) -> Result<Option<ShmRegion>, TransportError> {
        Ok(None)
    }
}
