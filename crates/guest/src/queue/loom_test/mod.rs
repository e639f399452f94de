//! Models of the hand-over between callers, the leader that sleeps, and the device.
//!
//! Loom tries the orders of every lock, atomic, wait and ring index, with a bound on preemptions: two or three suffice
//! for every known lost wake-up, and keep the run time of a model at seconds.

#![expect(clippy::unwrap_used, reason = "a lock of loom is never poisoned")]

pub(crate) mod platform;

use alloc::{sync::Arc, vec, vec::Vec};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use loom::{
    sync::{Condvar, Mutex},
    thread,
};

use super::{Health, Queue, QueueSettings};
use crate::{
    channel::{ChannelError, Message, OwnedMessage, Sink, Source},
    dma::{Direct, DmaOps},
    ring::{Barriers, RingSettings},
    transport::{InterruptCounter, InterruptWait as _, QueueAddresses, ShmRegion, Transport, TransportError},
};
use platform::{Leaked, Model, at};

const LEN: u16 = 2;

/// A doorbell, which stays signalled until somebody takes it.
#[derive(Default)]
struct Bell {
    rings: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rings.lock().unwrap() = true;
        self.rung.notify_all();
    }

    fn take(&self) {
        let mut rings = self.rings.lock().unwrap();
        while !*rings {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = false;
    }
}

/// One queue's transport to the device. Queues may share an interrupt.
struct QueueTransport {
    interrupt: Arc<InterruptCounter<platform::Event>>,
    doorbell: Bell,
}

impl QueueTransport {
    fn new(interrupt: &Arc<InterruptCounter<platform::Event>>) -> Self {
        Self { interrupt: Arc::clone(interrupt), doorbell: Bell::default() }
    }
}

impl Transport for QueueTransport {
    fn device_type(&self) -> u32 {
        26
    }
    fn status(&self) -> Result<u8, TransportError> {
        Ok(0)
    }
    fn add_status(&self, _: u8) -> Result<(), TransportError> {
        Ok(())
    }
    fn reset(&self) -> Result<(), TransportError> {
        // A real waiter for the device would check again after a while, which no model does.
        self.interrupt.raise(0);
        Ok(())
    }
    fn device_features(&self) -> Result<u64, TransportError> {
        Ok(0)
    }
    fn set_driver_features(&self, _: u64) -> Result<(), TransportError> {
        Ok(())
    }
    fn read_config(&self, _: usize, _: &mut [u8]) -> Result<(), TransportError> {
        Ok(())
    }
    fn queue_len_max(&self, _: u16) -> Result<u16, TransportError> {
        Ok(LEN)
    }
    fn start_queue(&self, _: u16, _: u16, _: QueueAddresses) -> Result<(), TransportError> {
        Ok(())
    }
    fn notify(&self, _: u16) {
        self.doorbell.ring();
    }
    fn notifications(&self, _: u16) -> u64 {
        self.interrupt.count(0)
    }
    fn wait(&self, _: u16, seen: u64, _: Option<u64>) -> Result<(), TransportError> {
        self.interrupt.wait(0, seen, None);
        Ok(())
    }
    fn shm_region(&self, _: u8) -> Result<Option<ShmRegion>, TransportError> {
        Ok(None)
    }
}

type ModelQueue = Queue<Model, QueueTransport>;

fn queue(chains_max: u16, has_event_index: bool) -> (Arc<ModelQueue>, Arc<QueueTransport>) {
    queue_with(&Arc::new(InterruptCounter::new(1)), chains_max, has_event_index)
}

fn queue_with(
    interrupt: &Arc<InterruptCounter<platform::Event>>,
    chains_max: u16,
    has_event_index: bool,
) -> (Arc<ModelQueue>, Arc<QueueTransport>) {
    let (platform, line) = (Arc::new(Model), Arc::new(QueueTransport::new(interrupt)));
    let ops: Arc<dyn DmaOps> = Arc::new(Direct::new(Leaked));
    let health = Health::new(Arc::clone(&platform), Arc::clone(&line) as Arc<dyn Transport>);
    let ring = RingSettings {
        len: LEN,
        chains_max,
        segments_max: 2,
        is_indirect: true,
        has_event_index,
        barriers: Barriers::default(),
    };
    let settings = QueueSettings { index: 1, ring, data_len_max: 4096, poll_max_ns: 0, pollers_max: 0 };
    (Queue::new(settings, platform, Arc::clone(&line), ops, health).unwrap(), line)
}

/// The device's end: takes `count` requests, and uses each with what `used` returns for its head.
fn serve(
    line: &QueueTransport,
    addresses: QueueAddresses,
    count: u16,
    has_event_index: bool,
    used: impl Fn(u16) -> (u32, u32),
) {
    let len = usize::from(LEN);
    let (available, ring) = (at(addresses.available, 6 + 2 * len), at(addresses.used, 6 + 8 * len));
    for turn in 0..count {
        while available.load_u16(2, Acquire) == turn {
            if has_event_index {
                ring.store_u16(4 + 8 * len, turn, SeqCst);
                if available.load_u16(2, SeqCst) != turn {
                    break;
                }
            }
            line.doorbell.take();
        }
        let (id, written) = used(available.load_u16(4 + 2 * (usize::from(turn) % len), Relaxed));
        let element = 4 + 8 * (usize::from(turn) % len);
        ring.write(element, &id.to_le_bytes());
        ring.write(element + 4, &written.to_le_bytes());
        ring.store_u16(2, turn + 1, Release);
        let is_wanted = if has_event_index {
            available.load_u16(4 + 2 * len, SeqCst) == turn
        } else {
            available.load_u16(0, SeqCst) & 1 == 0
        };
        if is_wanted {
            line.interrupt.raise(0);
        }
    }
}

fn call(queue: &ModelQueue) -> Result<usize, ChannelError> {
    let mut reply = [0; 8];
    let message = Message { head: &[1, 2], data: Source::Empty, reply_head: &mut reply, reply_data: Sink::Empty };
    queue.call(message)
}

/// Starts a message, and returns its ticket.
fn start(queue: &ModelQueue) -> u64 {
    queue.start(OwnedMessage { head: vec![1, 2], data: None, reply_head_len: 8, reply_data: None }).unwrap()
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(run);
}

/// Two threads call, and the device answers both.
fn two_callers(chains_max: u16, has_event_index: bool) {
    let (queue, line) = queue(chains_max, has_event_index);
    let addresses = queue.addresses();
    let device = thread::spawn(move || serve(&line, addresses, 2, has_event_index, |head| (head.into(), 5)));
    let other = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || assert_eq!(call(&queue), Ok(5)))
    };
    assert_eq!(call(&queue), Ok(5));
    other.join().unwrap();
    device.join().unwrap();
}

#[test]
fn no_reply_is_slept_through_with_an_event_index() {
    model(2, || two_callers(2, true));
}

#[test]
fn no_reply_is_slept_through_without_an_event_index() {
    model(2, || two_callers(2, false));
}

#[test]
fn who_waits_for_room_gets_it() {
    model(2, || two_callers(1, true));
}

/// The first is answered only after the second has its reply: no interrupt of its own wakes a thread that missed one.
#[test]
fn queues_that_share_an_interrupt_each_see_theirs() {
    model(2, || {
        let interrupt = Arc::new(InterruptCounter::new(1));
        let [(first, first_line), (second, second_line)] = [(); 2].map(|()| queue_with(&interrupt, 1, true));
        let addresses = [first.addresses(), second.addresses()];
        let is_answered = Arc::new(Bell::default());
        let device = {
            let is_answered = Arc::clone(&is_answered);
            thread::spawn(move || {
                serve(&second_line, addresses[1], 1, true, |head| (head.into(), 5));
                is_answered.take();
                serve(&first_line, addresses[0], 1, true, |head| (head.into(), 5));
            })
        };
        let other = thread::spawn(move || assert_eq!(call(&first), Ok(5)));
        assert_eq!(call(&second), Ok(5));
        is_answered.ring();
        other.join().unwrap();
        device.join().unwrap();
    });
}

#[test]
fn a_call_gets_the_slot_of_a_started_message_that_nobody_finishes() {
    model(2, || {
        let (queue, line) = queue(1, true);
        let addresses = queue.addresses();
        let device = thread::spawn(move || serve(&line, addresses, 2, true, |head| (head.into(), 5)));
        let ticket = start(&queue);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || assert_eq!(call(&queue), Ok(5)))
        };
        assert_eq!(queue.finish(ticket).unwrap().written, 5);
        other.join().unwrap();
        device.join().unwrap();
    });
}

/// While a message that is not started yet holds the only slot, a call that waits for room may not lead. `start` has to
/// wake it, because nobody else will.
#[test]
fn a_call_that_waits_for_room_leads_once_the_message_in_its_way_is_started() {
    model(2, || {
        let (queue, line) = queue(1, true);
        let addresses = queue.addresses();
        let device = thread::spawn(move || serve(&line, addresses, 2, true, |head| (head.into(), 5)));
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || assert_eq!(call(&queue), Ok(5)))
        };
        let ticket = start(&queue);
        other.join().unwrap();
        assert_eq!(queue.finish(ticket).unwrap().written, 5);
        device.join().unwrap();
    });
}

#[test]
fn every_caller_of_a_device_that_lies_gets_an_error() {
    model(2, || {
        let (queue, line) = queue(2, true);
        let addresses = queue.addresses();
        let device = thread::spawn(move || serve(&line, addresses, 1, true, |_| (7, 0)));
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || call(&queue))
        };
        let outcomes: Vec<_> = [call(&queue), other.join().unwrap()].into();
        let broken = Err(ChannelError::Broken("it used a descriptor that it was not given"));
        assert_eq!(outcomes, [broken.clone(), broken]);
        device.join().unwrap();
    });
}
