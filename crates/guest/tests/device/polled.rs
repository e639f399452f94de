//! A transport without interrupts.

use transom_guest::transport::{QueueAddresses, ShmRegion, Transport, TransportError};

use crate::fake::FakeTransport;

/// A transport that can only be polled: a wait calls `on_wait` with the queue's number and returns.
pub(crate) struct Polled<W> {
    pub(crate) line: FakeTransport,
    pub(crate) on_wait: W,
}

impl<W: Fn(&FakeTransport, u16) + Send + Sync + 'static> Transport for Polled<W> {
    fn wait(&self, queue: u16, _: u64, _: Option<u64>) -> Result<(), TransportError> {
        (self.on_wait)(&self.line, queue);
        Ok(())
    }

    fn device_type(&self) -> u32 {
        self.line.device_type()
    }

    fn status(&self) -> Result<u8, TransportError> {
        self.line.status()
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.line.add_status(bits)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.line.reset()
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        self.line.device_features()
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        self.line.set_driver_features(features)
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        self.line.read_config(offset_bytes, bytes)
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        self.line.queue_len_max(queue)
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        self.line.start_queue(queue, len, addresses)
    }

    fn notify(&self, queue: u16) {
        self.line.notify(queue);
    }

    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        self.line.shm_region(id)
    }
}
