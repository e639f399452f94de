//! virtio over PCI with a model of a device, and with configurations and registers that return anything.

mod bus;
mod fake;
mod hostile;
mod msix;

use std::sync::Arc;

use fake::{BAR, Fake, State, WINDOW, WINDOW_LEN, capability, capability_64};
use parking_lot::{Mutex, RawMutex};
use transom_guest::transport::{
    InterruptWait, Interrupts, QueueAddresses, ShmRegion, Transport, TransportError,
    pci::{Bar, Pci, read_bars},
};

type Device = Pci<fake::Part, RawMutex>;

const ADDRESSES: QueueAddresses =
    QueueAddresses { descriptors: 0x1_2345_6000, available: 0x2_2345_7000, used: 0x3_2345_8000 };

fn open(fake: &Fake, interrupts: Interrupts) -> Result<Device, TransportError> {
    Pci::new(fake, |range| fake.map(range), interrupts)
}

/// Creates a device changed by `change`.
fn changed(change: impl FnOnce(&mut State)) -> Result<Device, TransportError> {
    let fake = Fake::default();
    change(&mut fake.0.lock());
    open(&fake, Interrupts::Polling)
}

/// Initializes the device in the order of virtio 1.3 §3.1.1.
fn bring_up(transport: &dyn Transport) {
    transport.reset().unwrap();
    transport.add_status(1).unwrap();
    transport.add_status(2).unwrap();
    let features = transport.device_features().unwrap();
    transport.set_driver_features(features).unwrap();
    transport.add_status(8).unwrap();
    assert_eq!(transport.status().unwrap(), 0b1011);
    for queue in 0..3 {
        assert_eq!(transport.queue_len_max(queue), Ok(256));
        transport.start_queue(queue, 64, ADDRESSES).unwrap();
    }
    transport.add_status(4).unwrap();
}

#[test]
fn a_device_is_brought_up_in_the_order_of_the_specification_and_notified() {
    let fake = Fake::default();
    let device = open(&fake, Interrupts::Polling).unwrap();
    device.notify(2);
    bring_up(&device);
    device.notify(2);
    device.notify(7);
    let state = fake.0.lock();
    assert_eq!(state.faults, [""; 0]);
    assert_eq!((device.device_type(), state.driver_features, state.status), (26, 1 << 32 | 1 << 29, 0b1111));
    assert!(state.queues.iter().all(|queue| queue.is_enabled && queue.len == 64 && queue.addresses == ADDRESSES));
    assert!(state.queues.iter().all(|queue| queue.vector == 0xffff));
    assert_eq!(state.notified, [(8, 2)]);
    // Memory and bus mastering are enabled, the interrupt line is disabled.
    assert_eq!(state.config[4..6], [0b110, 0b100]);
}

#[test]
fn the_configuration_and_the_window_are_found() {
    let device = changed(|_| {}).unwrap();
    let (mut tag, mut queues) = ([0; 36], [0; 4]);
    device.read_config(0, &mut tag).unwrap();
    device.read_config(36, &mut queues).unwrap();
    assert_eq!((tag, queues), ([b'a'; 36], [2, 0, 0, 0]));
    assert!(matches!(device.read_config(37, &mut queues), Err(TransportError::Lacks(_))));
    assert_eq!(device.shm_region(0), Ok(Some(ShmRegion { address: WINDOW, len_bytes: WINDOW_LEN })));
    assert_eq!(device.shm_region(1), Ok(None));
}

#[test]
fn bars_are_sized_and_put_back_while_the_function_does_not_answer() {
    let fake = Fake::default();
    {
        let mut state = fake.0.lock();
        state.put(4, &[2, 0]);
        // 64 bits wide with 8 GiB: no writable bit in the lower half. Also an I/O BAR.
        state.put(0x10, &0xc001u32.to_le_bytes());
        state.bar_masks[0] = !0x1f;
    }
    let before = fake.0.lock().config;
    let bars = read_bars(&fake).unwrap();
    let window = Bar { address: WINDOW, len_bytes: WINDOW_LEN };
    assert_eq!(bars, [None, None, Some(window), None, Some(Bar { address: BAR, len_bytes: 0x4000 }), None]);
    let state = fake.0.lock();
    assert_eq!(state.config, before);
    assert_eq!(state.faults, [""; 0]);
}

#[test]
fn what_is_no_modern_virtio_device_is_refused_and_the_error_names_it() {
    let refusal = |identity: u32| changed(|state| state.put(0, &identity.to_le_bytes())).err().unwrap();
    assert!(refusal(0x1009_1af4).to_string().contains("transitional"));
    assert!(refusal(0x105a_8086).to_string().contains("identity"));
    assert_eq!(refusal(u32::MAX), TransportError::Gone);
    let error = changed(|state| state.put(6, &[0])).err().unwrap();
    assert!(error.to_string().contains("capabilities"), "{error}");
}

#[test]
fn a_list_that_loops_or_leaves_its_place_is_an_error() {
    let error = |at: usize, bytes: &[u8]| changed(|state| state.put(at, bytes)).err().unwrap().to_string();
    assert!(error(0x41, &[0x40]).contains("does not end"));
    assert!(error(0x34, &[0x20]).contains("within the header"));
    // A capability in the last four bytes claims to be longer than they are.
    let at_the_end = changed(|state| {
        state.put(0x34, &[0xfc]);
        state.put(0xfc, &[9, 0, 16, 1]);
    });
    assert!(at_the_end.err().unwrap().to_string().contains("beyond the configuration"));
}

#[test]
fn structures_that_are_missing_short_or_outside_their_bar_are_errors() {
    let error = |list: &[Vec<u8>]| changed(|state| state.list(list)).err().unwrap().to_string();
    let notify = || capability(2, 4, 0x3000, 0x1000, &4u32.to_le_bytes());
    let isr = || capability(3, 4, 0x1000, 1, &[]);
    let common = |offset, len| capability(1, 4, offset, len, &[]);
    assert!(error(&[notify(), isr()]).contains("common configuration"));
    assert!(error(&[common(0, 56), isr()]).contains("notifications"));
    assert!(error(&[common(0, 56), notify()]).contains("interrupt status"));
    assert!(error(&[common(0, 52), notify(), isr()]).contains("shorter than 56"));
    assert!(error(&[common(0x3fe0, 56)]).contains("within its BAR"));
    assert!(error(&[common(0xffff_fffc, 56)]).contains("within its BAR"));
    assert!(error(&[common(2, 56)]).contains("aligned"));
    assert!(error(&[capability(2, 4, 0x3000, 0x1000, &[])]).contains("too short"));
    // Capabilities in a BAR that does not exist, or has an invalid number, are skipped.
    assert!(error(&[capability(1, 5, 0, 56, &[]), capability(1, 9, 0, 56, &[])]).contains("common configuration"));
}

#[test]
fn shared_memory_outside_its_bar_or_twice_is_an_error_and_of_another_length_is_absent() {
    let region = |more: &[Vec<u8>]| {
        let structures = [
            capability(1, 4, 0, 56, &[]),
            capability(2, 4, 0x3000, 0x1000, &4u32.to_le_bytes()),
            capability(3, 4, 0x1000, 1, &[]),
        ];
        changed(|state| state.list(&[&structures, more].concat())).unwrap().shm_region(1)
    };
    let half = WINDOW_LEN / 2;
    let exceeds = |offset_bytes, len_bytes| {
        Err(TransportError::RegionExceedsBar { id: 1, offset_bytes, len_bytes, bar_len_bytes: WINDOW_LEN })
    };
    assert_eq!(
        region(&[capability_64(0, 2, 0, half), capability_64(1, 2, half, half)]),
        Ok(Some(ShmRegion { address: WINDOW + half, len_bytes: half }))
    );
    assert_eq!(region(&[capability_64(1, 2, half, half + 1)]), exceeds(half, half + 1));
    assert_eq!(region(&[capability_64(1, 2, u64::MAX, 2)]), exceeds(u64::MAX, 2));
    assert!(matches!(
        region(&[capability_64(1, 2, 0, half), capability_64(1, 2, half, half)]),
        Err(TransportError::Broken(_))
    ));
    let mut short = capability_64(1, 2, 0, half);
    short[2] = 20;
    assert_eq!(region(&[short]), Ok(None));
    assert_eq!(region(&[capability_64(1, 5, 0, half)]), Ok(None));
    assert_eq!(region(&[capability_64(1, 2, 0, 0)]), Ok(None));
}

#[test]
fn a_queue_whose_notification_lies_outside_is_not_started() {
    let fake = Fake::default();
    let device = open(&fake, Interrupts::Polling).unwrap();
    // Four bytes each in a structure of 0x1000: the last one begins at 0xffc.
    fake.0.lock().queues[0].notify_off = 0x400;
    fake.0.lock().queues[1].notify_off = 0x3ff;
    fake.0.lock().status = 8;
    assert!(matches!(device.start_queue(0, 64, ADDRESSES), Err(TransportError::Broken(_))));
    device.start_queue(1, 64, ADDRESSES).unwrap();
    assert!(matches!(device.start_queue(1, 64, ADDRESSES), Err(TransportError::Broken(_))));
    assert!(matches!(device.start_queue(3, 64, ADDRESSES), Err(TransportError::Lacks(_))));
    assert!(matches!(device.start_queue(0, 512, ADDRESSES), Err(TransportError::Lacks(_))));
}

/// Records the vectors that were waited for; the interrupt has always come already.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<u16>>>);

impl InterruptWait for Waits {
    fn count(&self, vector: u16) -> u64 {
        10 + u64::from(vector)
    }

    fn wait(&self, vector: u16, seen: u64, _deadline_ns: Option<u64>) -> bool {
        assert_eq!(seen, self.count(vector), "the count of another vector");
        self.0.lock().push(vector);
        true
    }

    fn raise(&self, _: u16) {}
}

#[test]
fn each_queue_waits_for_a_message_of_its_own_where_there_are_enough_and_shares_the_first_otherwise() {
    for (given, the_device_can, expected) in [(4, 4, [1, 2, 3]), (3, 3, [1, 2, 1]), (4, 2, [1, 0, 0]), (1, 1, [0; 3])] {
        let (fake, waits) = (Fake::default(), Waits::default());
        fake.0.lock().vectors = the_device_can;
        let device = open(&fake, Interrupts::Messages(given, Box::new(waits.clone()))).unwrap();
        bring_up(&device);
        for queue in 0..3 {
            device.wait(queue, device.notifications(queue), None).unwrap();
        }
        assert_eq!(*waits.0.lock(), expected);
        assert_eq!(fake.0.lock().queues.iter().map(|queue| queue.vector).collect::<Vec<_>>(), expected);
        assert_eq!(fake.0.lock().faults, [""; 0]);
    }
    let fake = Fake::default();
    fake.0.lock().vectors = 0;
    fake.0.lock().status = 8;
    let device = open(&fake, Interrupts::Messages(4, Box::new(Waits::default()))).unwrap();
    assert_eq!(device.start_queue(0, 64, ADDRESSES), Err(TransportError::Lacks("an interrupt vector for a queue")));
}

#[test]
fn a_line_is_quietened_by_reading_its_cause_and_a_changed_status_is_noticed() {
    let fake = Fake::default();
    let device = open(&fake, Interrupts::Line(Box::new(Waits::default()))).unwrap();
    bring_up(&device);
    assert_eq!(fake.0.lock().config[4..6], [0b110, 0]);
    fake.0.lock().isr = 1;
    device.wait(1, device.notifications(1), None).unwrap();
    assert_eq!(fake.0.lock().isr, 0);
    fake.0.lock().isr = 2;
    fake.0.lock().status |= 0x40;
    assert!(matches!(device.wait(1, device.notifications(1), None), Err(TransportError::Broken(_))));
    fake.0.lock().isr = 2;
    fake.0.lock().status = 0xff;
    assert_eq!(device.wait(1, device.notifications(1), None), Err(TransportError::Gone));
}
