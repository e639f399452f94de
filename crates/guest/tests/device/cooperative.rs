//! Threads that share a processor, and keep it until they yield.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use transom_guest::{
    channel::{Channel as _, Message, Sink, Source},
    device::{Settings, VirtioFs},
    platform::{Held, Platform},
    transport::{QueueAddresses, ShmRegion, Transport, TransportError},
};

use crate::{
    calls::echo,
    fake::{ALL, Fake, Line},
    platform::{Event, SLEEPING, Threads, direct},
};

/// More than a thread yields while it polls before it would sleep.
const YIELDS: u64 = 1000;

/// A platform on which the reply comes only after others had the processor often enough: one of them releases a lock that the
/// request waits for.
struct Cooperative {
    fake: Arc<Fake>,
    yields: AtomicU64,
}

impl Platform for Cooperative {
    type RawMutex = parking_lot::RawMutex;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        Threads.now_ns()
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn yield_now(&self) {
        if self.yields.fetch_add(1, Ordering::Relaxed) == YIELDS {
            let chain = self.fake.pop(1).expect("somebody waits for a reply");
            let written = chain.reply(&echo(&chain));
            self.fake.push(1, chain.head.into(), written);
        }
    }

    fn with_held(check: impl FnOnce(&Held)) {
        Threads::with_held(check);
    }
}

/// A transport that can only be polled.
struct Polled(Line);

impl Transport for Polled {
    fn wait(&self, _: u16, _: u64, _: Option<u64>) -> Result<(), TransportError> {
        Ok(())
    }

    fn device_type(&self) -> u32 {
        self.0.device_type()
    }

    fn status(&self) -> Result<u8, TransportError> {
        self.0.status()
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.0.add_status(bits)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.0.reset()
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        self.0.device_features()
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        self.0.set_driver_features(features)
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        self.0.read_config(offset_bytes, bytes)
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        self.0.queue_len_max(queue)
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        self.0.start_queue(queue, len, addresses)
    }

    fn notify(&self, queue: u16) {
        self.0.notify(queue);
    }

    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        self.0.shm_region(id)
    }
}

#[test]
fn who_watches_for_a_reply_yields_to_the_thread_that_it_depends_on() {
    for settings in [SLEEPING, Settings::default()] {
        let fake = Arc::new(Fake::new(ALL, 1, 16));
        let platform = Arc::new(Cooperative { fake: Arc::clone(&fake), yields: AtomicU64::new(0) });
        let device = VirtioFs::new(Polled(Line(fake)), platform, &direct(), settings).unwrap();
        let (sender, answered) = mpsc::channel();
        // A thread of its own, which is left alone if it never gets its reply.
        let caller = thread::spawn(move || {
            let mut sum = [0; 8];
            let message =
                Message { head: &[3; 40], data: Source::Empty, reply_head: &mut sum, reply_data: Sink::Empty };
            sender.send(device.call(0, message).map(|_| u64::from_le_bytes(sum))).unwrap();
        });
        assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(Ok(120)));
        caller.join().unwrap();
    }
}
