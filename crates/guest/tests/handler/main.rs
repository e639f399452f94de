//! An interrupt handler neither allocates nor frees, and waits for no thread that does: nothing touches the heap under
//! a lock that handlers take. Otherwise a handler that interrupted the allocator would wait for itself.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(unsafe_code, reason = "a global allocator and a raw lock are unsafe traits")]

#[path = "../device/fake.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod fake;
#[path = "../device/memory.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod memory;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    backtrace::Backtrace,
    cell::Cell,
    sync::{Arc, Mutex},
    task::Waker,
};

use fake::{ALL, Fake, FakeTransport};
use memory::Heap;
use transom_guest::{
    Platform,
    channel::{Channel as _, OwnedMessage},
    device::{Settings, VirtioFs},
    dma::{Direct, DmaChoice},
    platform,
};

thread_local! {
    /// Locks that this thread holds, and handlers that it runs: while there are any, it must leave the heap alone.
    static QUIET: Cell<u32> = const { Cell::new(0) };
}

static WRONG: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Checking;

#[global_allocator]
static ALLOCATOR: Checking = Checking;

impl Checking {
    fn check() {
        // In what follows, and in the drop of the thread's values, the heap may be used.
        let depth = QUIET.replace(0);
        if depth > 0 {
            WRONG.lock().unwrap().push(Backtrace::force_capture().to_string());
        }
        QUIET.set(depth);
    }
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Checking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        Self::check();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) };
    }
}

/// The library's lock, which turns the heap off as a kernel's turns interrupts off.
struct Lock(parking_lot::RawMutex);

// SAFETY: passes every call on to a lock.
unsafe impl lock_api::RawMutex for Lock {
    const INIT: Self = Self(parking_lot::RawMutex::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        self.0.lock();
        QUIET.set(QUIET.get() + 1);
    }

    fn try_lock(&self) -> bool {
        let is_taken = self.0.try_lock();
        QUIET.set(QUIET.get() + u32::from(is_taken));
        is_taken
    }

    unsafe fn unlock(&self) {
        QUIET.set(QUIET.get() - 1);
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock() };
    }
}

struct OneThread;

impl Platform for OneThread {
    type RawMutex = Lock;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

#[derive(Default)]
struct Event;

impl platform::Event for Event {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        assert!(is_done(), "this test never waits");
        true
    }

    fn wake_all(&self) {}
}

/// A message with buffers of its own, and a head that is too long for its slot.
fn message(device: &VirtioFs<OneThread, FakeTransport>, head_len: usize) -> OwnedMessage {
    let buffer = || Some((Arc::new(device.buffer(4096).unwrap()), 0..100));
    OwnedMessage { head: vec![1; head_len], data: buffer(), reply_head_len: 16, reply_data: buffer() }
}

/// Has the device use everything that it was given, and calls `interrupt` if the driver wants to know.
fn serve(fake: &Fake, interrupt: impl Fn()) {
    let mut is_wanted = false;
    while let Some(chain) = fake.pop(1) {
        is_wanted |= fake.push(1, chain.head.into(), chain.reply(&[7; 16]));
    }
    if is_wanted {
        interrupt();
    }
}

#[test]
fn the_heap_is_left_alone_in_handlers_and_under_the_locks_that_they_take() {
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    let heap: &'static Heap = Box::leak(Box::new(Heap::new()));
    let dma = DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() };
    let settings = Settings { in_flight_max: 4, poll_max_ns: 0, ..Settings::default() };
    let device = VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(OneThread), &dma, settings).unwrap();
    let handler = || {
        QUIET.set(QUIET.get() + 1);
        device.interrupt(1);
        QUIET.set(QUIET.get() - 1);
    };
    // What the device's start has done is not what this is about.
    WRONG.lock().unwrap().clear();

    // The fifth and later ones find no free slot: replies that have come are moved out of theirs.
    let mut tickets = Vec::new();
    for round in 0..40 {
        tickets.push(device.start(0, message(&device, if round % 2 == 0 { 40 } else { 3000 })).unwrap());
        if tickets.len() % 4 == 0 {
            serve(&fake, || {});
        }
    }
    assert!(tickets.iter().all(|ticket| device.is_finished(ticket)));
    // Some are dropped, after their replies have come.
    for ticket in tickets.drain(20..) {
        device.abandon(ticket);
    }
    for ticket in tickets.drain(..) {
        assert_eq!(device.finish(ticket).unwrap().head, [7; 16]);
    }
    // A handler finds replies, of messages that are watched, dropped, and neither.
    for round in 0..12 {
        let ticket = device.start(0, message(&device, 3000)).unwrap();
        assert!(!device.watch(&ticket, Waker::noop()));
        serve(&fake, handler);
        assert!(device.is_finished(&ticket));
        let other = device.start(0, message(&device, 40)).unwrap();
        device.abandon(other);
        serve(&fake, handler);
        handler();
        if round % 2 == 0 { drop(device.finish(ticket).unwrap()) } else { device.abandon(ticket) }
    }
    let wrong = std::mem::take(&mut *WRONG.lock().unwrap());
    assert!(wrong.is_empty(), "{} uses of the heap; the first: {}", wrong.len(), wrong[0]);
}
