//! A device that answers within the notification, and a platform that need not sleep.

use std::sync::Arc;

use transom_guest::{
    platform::{self, Platform},
    transport::{QueueAddresses, ShmRegion, Transport, TransportError},
};

use crate::fake::{Fake, FakeTransport};

/// The reply to a READ, head and data.
const REPLY: [u8; 24 + 4096] = [7; 24 + 4096];

/// Its events are polled: replies arrive before anybody waits, except those that another thread is about to deliver.
pub(crate) struct Threads;

impl Platform for Threads {
    type RawMutex = parking_lot::RawMutex;
    type Event = Yield;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

#[derive(Default)]
pub(crate) struct Yield;

impl platform::Event for Yield {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        while !is_done() {
            if deadline_ns.is_some() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn wake_all(&self) {}
}

/// [`FakeTransport`] to a device that works within [`Transport::notify`].
pub(crate) struct Inline {
    fake: Arc<Fake>,
    line: FakeTransport,
}

impl Inline {
    pub(crate) fn new(fake: Fake) -> Self {
        let fake = Arc::new(fake);
        Self { line: FakeTransport(Arc::clone(&fake)), fake }
    }
}

impl Transport for Inline {
    fn notify(&self, queue: u16) {
        let queue = usize::from(queue);
        while let Some(chain) = self.fake.pop(queue) {
            std::hint::black_box(chain.sent());
            let written = chain.reply(&REPLY);
            self.fake.push(queue, chain.head.into(), written);
        }
    }

    fn wait(&self, _: u16, _: u64, _: Option<u64>) -> Result<(), TransportError> {
        std::thread::yield_now();
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

    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        self.line.shm_region(id)
    }
}
