//! virtio-mmio with a model of a device, and with registers that return anything.

mod fake;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fake::{Fake, Queue};
use proptest::prelude::*;
use transom_guest::transport::{
    InterruptWait, Interrupts, QueueAddresses, Registers, ShmRegion, Transport, TransportError, mmio::Mmio,
};

type Device = Mmio<Fake, parking_lot::RawMutex>;

const ADDRESSES: QueueAddresses =
    QueueAddresses { descriptors: 0x1_2345_6000, available: 0x2_2345_7000, used: 0x3_2345_8000 };

fn device(fake: &Fake) -> Device {
    Mmio::new(fake.clone(), Interrupts::Polling).unwrap()
}

/// Initializes the device in the order of virtio 1.3 §3.1.1.
fn bring_up(transport: &dyn Transport) {
    transport.reset().unwrap();
    transport.add_status(1).unwrap();
    transport.add_status(2).unwrap();
    let features = transport.device_features().unwrap();
    transport.set_driver_features(features & (1 << 32 | 1 << 29)).unwrap();
    transport.add_status(8).unwrap();
    assert_eq!(transport.status().unwrap(), 0b1011);
    for queue in 0..2 {
        transport.start_queue(queue, 64, ADDRESSES).unwrap();
    }
    transport.add_status(4).unwrap();
}

#[test]
fn a_device_is_brought_up_in_the_order_of_the_specification_and_notified() {
    let fake = Fake::default();
    let device = device(&fake);
    bring_up(&device);
    device.notify(1);
    let state = fake.0.lock();
    assert_eq!(state.faults, [""; 0]);
    assert_eq!((device.device_type(), state.driver_features, state.status), (26, 1 << 32 | 1 << 29, 0b1111));
    let running = |len_max| Queue { len_max, len: 64, addresses: ADDRESSES, is_ready: true };
    assert_eq!(state.queues, [running(128), running(1024), Queue::idle(100)]);
    assert_eq!(state.notified, [1]);
}

#[test]
fn what_is_no_device_of_version_2_is_refused_and_the_error_names_it() {
    let refusal = |change: fn(&mut fake::State)| {
        let fake = Fake::default();
        change(&mut fake.0.lock());
        Device::new(fake, Interrupts::Polling).err().unwrap().to_string()
    };
    let legacy = refusal(|state| state.version = 1);
    assert!(legacy.contains("legacy") && legacy.contains("type 26") && legacy.contains("force-legacy"), "{legacy}");
    assert!(refusal(|state| state.version = 3).contains("version 2"));
    assert!(refusal(|state| state.magic = 0).contains("magic"));
    assert!(refusal(|state| state.device_id = 0).contains("no device at"));
    assert!(refusal(|state| (state.version, state.device_id) = (1, 0)).contains("no device at"));
}

#[test]
fn a_reset_waits_for_the_device_and_gives_up_on_one_that_never_ends() {
    let fake = Fake::default();
    fake.0.lock().reset_reads = 100;
    device(&fake).reset().unwrap();
    fake.0.lock().reset_reads = u32::MAX;
    assert_eq!(device(&fake).reset(), Err(TransportError::Broken("its reset does not end")));
}

#[test]
fn queue_lengths_are_cut_to_powers_of_two_and_impossible_ones_refused() {
    let fake = Fake::default();
    let device = device(&fake);
    assert_eq!([0, 1, 2, 3].map(|queue| device.queue_len_max(queue).unwrap()), [128, 1024, 64, 0]);
    for len_max in [32769, 65536, u32::MAX - 1] {
        fake.0.lock().queues[0].len_max = len_max;
        assert!(matches!(device.queue_len_max(0), Err(TransportError::Broken(_))), "{len_max}");
    }
    assert!(matches!(device.start_queue(1, 2048, ADDRESSES), Err(TransportError::Lacks(_))));
    assert!(matches!(device.start_queue(1, 48, ADDRESSES), Err(TransportError::Lacks(_))));
    assert!(matches!(device.start_queue(3, 1, ADDRESSES), Err(TransportError::Lacks(_))));
    fake.0.lock().queues[1].is_ready = true;
    assert!(matches!(device.start_queue(1, 64, ADDRESSES), Err(TransportError::Broken(_))));
}

#[test]
fn the_configuration_is_read_from_one_generation_or_not_at_all() {
    let fake = Fake::default();
    let device = device(&fake);
    let (mut tag, mut queues) = ([0; 36], [0; 4]);
    device.read_config(0, &mut tag).unwrap();
    device.read_config(36, &mut queues).unwrap();
    assert_eq!((&tag[..6], u32::from_le_bytes(queues)), (&b"share\0"[..], 2));

    fake.0.lock().changes = 5;
    device.read_config(0, &mut tag).unwrap();
    assert_eq!(tag, [5; 36]);

    fake.0.lock().changes = u32::MAX;
    assert_eq!(device.read_config(0, &mut tag), Err(TransportError::Broken("its configuration never settles")));
    for (offset, len) in [(37, 4), (40, 1), (usize::MAX, 2)] {
        assert!(matches!(device.read_config(offset, &mut vec![0; len]), Err(TransportError::Lacks(_))), "{offset}");
    }
}

#[test]
fn shared_memory_is_there_absent_or_an_error_where_it_overflows() {
    let fake = Fake::default();
    let overflowing = ShmRegion { address: u64::MAX - 10, len_bytes: 11 };
    fake.0.lock().regions.push((1, overflowing));
    fake.0.lock().regions.push((2, ShmRegion { address: 0x1000, len_bytes: 0 }));
    let device = device(&fake);
    assert_eq!(device.shm_region(0), Ok(Some(ShmRegion { address: 0x1_0000_0000, len_bytes: 1 << 33 })));
    assert!(matches!(device.shm_region(1), Err(TransportError::Broken(_))));
    assert_eq!((device.shm_region(2), device.shm_region(3)), (Ok(None), Ok(None)));
    assert_eq!(fake.0.lock().faults, [""; 0]);
}

/// An interrupt that has always come already, or never comes.
struct Always(bool, Arc<AtomicUsize>);

impl InterruptWait for Always {
    fn count(&self, _: u16) -> u64 {
        7
    }

    fn wait(&self, vector: u16, seen: u64, _deadline_ns: Option<u64>) -> bool {
        assert_eq!(seen, 7);
        assert_eq!(vector, 0);
        self.0
    }

    fn raise(&self, _: u16) {}

    fn rearm(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_wait_acknowledges_the_interrupt_and_notices_a_device_that_asks_for_a_reset() {
    let (fake, rearmed) = (Fake::default(), Arc::new(AtomicUsize::new(0)));
    let device = Device::new(fake.clone(), Interrupts::Line(Box::new(Always(true, rearmed.clone())))).unwrap();
    fake.0.lock().interrupt = 1;
    device.wait(0, device.notifications(0), None).unwrap();
    assert_eq!((fake.0.lock().interrupt, rearmed.load(Ordering::Relaxed)), (0, 1));
    fake.0.lock().interrupt = 2;
    fake.0.lock().status = 0x4f;
    assert!(matches!(device.wait(0, device.notifications(0), None), Err(TransportError::Broken(_))));
}

/// A line that the kernel's handler masks when it fires, and that fires while the device has a cause and it is not
/// masked.
struct Masked {
    device: Fake,
    state: Arc<parking_lot::Mutex<(u64, bool)>>,
}

impl InterruptWait for Masked {
    fn count(&self, _: u16) -> u64 {
        let mut state = self.state.lock();
        if self.device.0.lock().interrupt != 0 && !state.1 {
            *state = (state.0 + 1, true);
        }
        state.0
    }

    fn wait(&self, vector: u16, seen: u64, _deadline_ns: Option<u64>) -> bool {
        assert!(self.count(vector) != seen || !self.state.lock().1, "a wait for a line that stays masked");
        self.device.0.lock().interrupt = 1;
        self.count(vector) != seen
    }

    fn raise(&self, _: u16) {
        self.state.lock().0 += 1;
    }

    fn rearm(&self) {
        self.state.lock().1 = false;
    }
}

#[test]
fn an_interrupt_that_nobody_waited_for_does_not_keep_the_line_masked() {
    let (fake, state) = (Fake::default(), Arc::default());
    let line = Masked { device: fake.clone(), state: Arc::clone(&state) };
    let device = Device::new(fake.clone(), Interrupts::Line(Box::new(line))).unwrap();
    fake.0.lock().status = 0b1111;
    // The reply came while its caller looked at the ring; the next caller has counted its interrupt.
    fake.0.lock().interrupt = 1;
    let seen = device.notifications(0);
    assert_eq!(*state.lock(), (1, true));
    device.wait(0, seen, None).unwrap();
    assert_eq!(fake.0.lock().interrupt, 0);
    device.wait(0, device.notifications(0), None).unwrap();
    assert_eq!((fake.0.lock().interrupt, state.lock().1), (0, false));
}

#[test]
fn a_thread_whose_cause_another_queues_thread_takes_does_not_wait_for_an_interrupt() {
    let (fake, state) = (Fake::default(), Arc::default());
    let line = Masked { device: fake.clone(), state: Arc::clone(&state) };
    let device = Device::new(fake.clone(), Interrupts::Line(Box::new(line))).unwrap();
    fake.0.lock().status = 0b1111;
    let seen_by_first = device.notifications(1);
    fake.0.lock().interrupt = 1;
    // The second queue's thread looks at its ring after that interrupt, and finds nothing.
    let seen_by_second = device.notifications(2);
    assert_ne!(seen_by_first, seen_by_second);
    // Its reply comes while the line is masked: the cause is there already, and nothing interrupts.
    fake.0.lock().interrupt |= 1;
    // The first queue's thread takes the cause, and the line fires no more.
    device.wait(1, seen_by_first, None).unwrap();
    assert_eq!((fake.0.lock().interrupt, state.lock().1), (0, false));
    assert_ne!(device.notifications(2), seen_by_second, "the second queue's thread would wait");
}

#[test]
fn a_wait_that_times_out_notices_that_the_device_is_gone_and_so_does_polling_in_time() {
    let fake = Fake::default();
    let silent = Always(false, Arc::default());
    let waiting = Device::new(fake.clone(), Interrupts::Line(Box::new(silent))).unwrap();
    let polling = device(&fake);
    fake.0.lock().status = u32::MAX;
    assert_eq!(waiting.wait(0, waiting.notifications(0), Some(0)), Err(TransportError::Gone));
    assert!((0..10_000).any(|_| polling.wait(0, polling.notifications(0), None) == Err(TransportError::Gone)));
    assert_eq!(polling.status(), Err(TransportError::Gone));
}

/// Registers that return a repeating sequence of values, after a header that may be valid.
struct Hostile {
    words: Vec<u32>,
    next: AtomicUsize,
    is_plausible: bool,
    len_bytes: usize,
}

impl Registers for Hostile {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }
    fn read_u8(&self, offset_bytes: usize) -> u8 {
        self.read_u32(offset_bytes) as u8
    }
    fn read_u16(&self, offset_bytes: usize) -> u16 {
        self.read_u32(offset_bytes) as u16
    }
    fn read_u32(&self, offset_bytes: usize) -> u32 {
        match offset_bytes {
            0 if self.is_plausible => 0x7472_6976,
            4 if self.is_plausible => 2,
            _ => self.words[self.next.fetch_add(1, Ordering::Relaxed) % self.words.len()],
        }
    }
    fn write_u8(&self, _offset_bytes: usize, _value: u8) {}
    fn write_u16(&self, _offset_bytes: usize, _value: u16) {}
    fn write_u32(&self, _offset_bytes: usize, _value: u32) {}
}

fn any_word() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_registers_say_every_call_returns_and_what_it_returns_is_possible(
        words in prop::collection::vec(any_word(), 1..20),
        is_plausible in prop::bool::weighted(0.9),
        len_bytes in prop_oneof![Just(0x100usize), Just(0x128), 0..0x200usize],
    ) {
        let hostile = Hostile { words, next: AtomicUsize::new(0), is_plausible, len_bytes };
        let Ok(device) = Mmio::<_, parking_lot::RawMutex>::new(hostile, Interrupts::Polling) else { return Ok(()) };
        let _ = device.reset();
        let _ = device.add_status(1);
        let _ = (device.device_features(), device.set_driver_features(1));
        for queue in [0, 1, u16::MAX] {
            if let Ok(len) = device.queue_len_max(queue) {
                prop_assert!(len == 0 || len.is_power_of_two());
                let _ = device.start_queue(queue, len, ADDRESSES);
            }
            device.notify(queue);
            let _ = device.wait(queue, device.notifications(queue), None);
        }
        for (offset, len) in [(0, 36), (36, 4), (0, 8), (1, 2), (usize::MAX, 1)] {
            let _ = device.read_config(offset, &mut vec![0; len]);
        }
        for id in [0, 1, 255] {
            if let Ok(Some(region)) = device.shm_region(id) {
                prop_assert!(region.len_bytes > 0 && region.address.checked_add(region.len_bytes).is_some());
            }
        }
    }
}
