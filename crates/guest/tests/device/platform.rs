//! A platform with threads, for tests.

use std::{
    sync::{Arc, Condvar, Mutex, OnceLock},
    time::{Duration, Instant},
};

use transom_guest::{
    device::{Settings, VirtioFs},
    dma::{Direct, DmaChoice},
    platform::{self, Held, Platform},
};

use crate::{
    fake::{Fake, FakeTransport},
    memory::Heap,
};

pub(crate) struct Threads;

impl Platform for Threads {
    type RawMutex = parking_lot::RawMutex;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn processors(&self) -> u16 {
        3
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

#[derive(Default)]
pub(crate) struct Event {
    wakes: Mutex<u64>,
    woken: Condvar,
}

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        loop {
            let before = *self.wakes.lock().unwrap();
            if is_done() {
                return true;
            }
            let now_ns = Threads.now_ns();
            if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                return false;
            }
            let mut wakes = self.wakes.lock().unwrap();
            if *wakes == before {
                let left = deadline_ns.map_or(u64::MAX >> 8, |deadline_ns| deadline_ns - now_ns);
                wakes = self.woken.wait_timeout(wakes, Duration::from_nanos(left)).unwrap().0;
            }
            drop(wakes);
        }
    }

    fn wake_all(&self) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

pub(crate) type Device = VirtioFs<Threads, FakeTransport>;

/// Settings without polling: after a lost wake-up, every wait is endless.
pub(crate) const SLEEPING: Settings = Settings {
    queue_len_max: 1024,
    in_flight_max: 256,
    request_queues_max: Some(16),
    poll_max_ns: 0,
    pollers_max: 0,
    notification_buffers: 0,
};

pub(crate) fn direct() -> DmaChoice {
    let heap: &'static Heap = Box::leak(Box::new(Heap::new()));
    DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() }
}

pub(crate) fn device(fake: &Arc<Fake>, settings: Settings) -> Device {
    VirtioFs::new(FakeTransport(Arc::clone(fake)), Arc::new(Threads), &direct(), settings).unwrap()
}
