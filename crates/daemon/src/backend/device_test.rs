//! Stops of a ring, and changes of the guest's memory, at moments that a front end seldom meets.

use std::{
    fs,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Instant,
};

use transom_host::server::{End, InitAnswer, InitOffer};
use virtio_queue::QueueT as _;
use vm_memory::{Bytes as _, GuestAddress};

use super::{
    super::{RateLimits, chain::Descriptors, next::Next, view::MemoryView},
    *,
};
use crate::backend::Ownership;

/// The request queue of the tests.
const REQUEST: usize = 1;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const RAM_LEN: usize = 1 << 16;

/// A file system without operations, with locks that somebody else has.
struct Locked {
    is_free: AtomicBool,
    is_back: AtomicBool,
    tries: Sender<()>,
}

impl FileSystem for Locked {
    fn init(&self, _: &InitOffer) -> Result<InitAnswer, transom_host::Errno> {
        Err(transom_host::Errno::IO)
    }

    fn destroy(&self, _: End) {}

    fn has_let_go(&self) -> bool {
        !self.is_back.load(SeqCst)
    }

    fn take_back(&self, _: Instant) -> bool {
        let _ = self.tries.send(());
        let is_free = self.is_free.load(SeqCst);
        self.is_back.store(is_free, SeqCst);
        is_free
    }
}

transom_host::unserved!(Locked, except);

/// A device whose request queue has a ring that runs: one chain was taken and not returned, and one is offered.
struct Bench {
    device: Device<Locked>,
    vring: Vring,
    tries: Mutex<Receiver<()>>,
}

impl Bench {
    fn new(is_free: bool, rate: Option<RateLimits>) -> Self {
        let ram = GuestRam::from_ranges(&[(GuestAddress(0), RAM_LEN)]).unwrap();
        ram.write_obj(2_u16, GuestAddress(AVAIL + 2)).unwrap();
        Self::with_memory(is_free, rate, Some(ram))
    }

    fn with_memory(is_free: bool, rate: Option<RateLimits>, ram: Option<GuestRam>) -> Self {
        let (sender, tries) = channel();
        let server = Arc::new(Server::new(Locked { is_free: is_free.into(), is_back: false.into(), tries: sender }));
        let config = BackendConfig {
            tag: None,
            request_queues: 1,
            poll_max: Duration::ZERO,
            rate,
            pool_threads: 0,
            versions: None,
            window: None,
            keep_serving: false,
            ownership: Arc::new(Ownership::default()),
            migration: None,
            journal: None,
            notifications: None,
        };
        let device = Device::new(server, &config, &Arc::new(Monitor::default())).unwrap();
        if let Some(ram) = ram {
            device.current.replace(&device.memory, ram);
        }
        let vring = Vring::new(device.memory.clone(), 16).unwrap();
        vring.set_queue_size(16);
        vring.set_queue_info(0, AVAIL, USED).unwrap();
        vring.set_queue_next_avail(1);
        vring.set_enabled(true);
        vring.set_queue_ready(true);
        Self { device, vring, tries: Mutex::new(tries) }
    }

    fn queue(&self) -> &Arc<Queue<Locked>> {
        &self.device.queues[REQUEST]
    }

    /// What the queue's thread does at a kick.
    fn handle_kick(&self) {
        self.device.handle_event(0, EventSet::IN, std::slice::from_ref(&self.vring), REQUEST).unwrap();
    }

    /// Returns once the file system was asked to take its locks back.
    fn await_try(&self) {
        self.tries.lock().unwrap().recv().unwrap();
    }

    fn used(&self) -> u16 {
        self.vring.queue_used_idx().unwrap()
    }
}

/// Returns once the thread waits for something.
fn await_sleep(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    while !fs::read_to_string(&path).unwrap().contains(") S ") {
        thread::yield_now();
    }
}

#[test]
fn a_ring_that_is_started_before_there_is_memory_is_broken() {
    let bench = Bench::with_memory(true, None, None);
    bench.handle_kick();
    assert!(bench.queue().is_given_up());
}

#[test]
fn a_stop_does_not_wait_for_locks_that_somebody_else_has() {
    let bench = Bench::new(false, None);
    thread::scope(|scope| {
        let worker = scope.spawn(|| bench.handle_kick());
        bench.await_try();
        // The locks are never free: this would not return if one waited for the other.
        bench.vring.set_queue_ready(false);
        bench.device.stop_vring(REQUEST as u32).unwrap();
        worker.join().unwrap();
    });
    assert_eq!(bench.used(), 0, "nothing is served without the locks");
    bench.device.server.file_system().is_free.store(true, SeqCst);
    bench.vring.set_queue_ready(true);
    bench.handle_kick();
    assert_eq!(bench.used(), 1);
}

#[test]
fn a_stop_waits_for_requests_that_have_arrived_and_were_begun() {
    let bench = Bench::new(true, None);
    bench.queue().in_flight.arrive(vec![5]);
    let busy = bench.device.workers[REQUEST].lock().unwrap();
    thread::scope(|scope| {
        let worker = scope.spawn(|| bench.handle_kick());
        bench.await_try();
        bench.vring.set_queue_ready(false);
        assert_eq!(bench.queue().in_flight.count(), 1, "the stop has something to wait for");
        drop(busy);
        bench.device.stop_vring(REQUEST as u32).unwrap();
        assert_eq!(bench.used(), 1, "the request that has arrived is served, and no other one");
        worker.join().unwrap();
    });
    assert_eq!(bench.used(), 1);
    assert!(!bench.queue().is_given_up());
}

#[test]
fn a_guest_that_owes_time_holds_up_neither_a_stop_nor_the_end() {
    for leaves in [false, true] {
        let bench = Bench::new(true, Some(RateLimits { bytes: None, requests: Some(1) }));
        let rate = bench.queue().rate.clone().unwrap();
        (0..100_000).for_each(|_| rate.charge(0, Instant::now()));
        thread::scope(|scope| {
            let (sender, receiver) = channel();
            let bench = &bench;
            let worker = scope.spawn(move || {
                sender.send(rustix::thread::gettid()).unwrap();
                bench.handle_kick();
            });
            let worker_id = receiver.recv().unwrap();
            bench.await_try();
            await_sleep(worker_id);
            match leaves {
                true => bench.device.close(),
                false => {
                    bench.vring.set_queue_ready(false);
                    bench.device.stop_vring(REQUEST as u32).unwrap();
                }
            }
            // It owes more than a day.
            worker.join().unwrap();
        });
        assert_eq!(bench.used(), 0);
    }
}

#[test]
fn a_ring_that_has_moved_to_new_memory_is_not_broken() {
    let bench = Bench::new(true, None);
    let far = 1 << 30;
    thread::scope(|scope| {
        let mut ring = bench.vring.get_mut();
        let (sender, receiver) = channel();
        let bench = &bench;
        let worker = scope.spawn(move || {
            let memory = bench.queue().memory.memory();
            let view = MemoryView::new(&memory);
            sender.send(rustix::thread::gettid()).unwrap();
            let next = bench.queue().next(&view, &bench.vring, &mut Descriptors::default());
            assert!(matches!(next, Next::MemoryReplaced));
            assert!(matches!(bench.queue().enable_kicks(&view, &bench.vring), Err(Next::MemoryReplaced)));
            assert!(bench.queue().has_next(&view, &bench.vring), "polling ends");
        });
        // It is about to look at the ring: the front end replaces the memory and then moves the ring.
        await_sleep(receiver.recv().unwrap());
        let ram = GuestRam::from_ranges(&[(GuestAddress(far), RAM_LEN)]).unwrap();
        bench.device.current.replace(&bench.device.memory, ram);
        let queue = ring.get_queue_mut();
        queue.try_set_desc_table_address(GuestAddress(far)).unwrap();
        queue.try_set_avail_ring_address(GuestAddress(far + AVAIL)).unwrap();
        queue.try_set_used_ring_address(GuestAddress(far + USED)).unwrap();
        drop(ring);
        worker.join().unwrap();
    });
    assert!(!bench.queue().is_given_up());
    assert!(bench.vring.get_ref().get_queue().ready());
}
