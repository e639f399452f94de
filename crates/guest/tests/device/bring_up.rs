//! Initialization of devices, and devices that are refused.

use std::sync::Arc;

use transom_guest::{
    channel::Channel,
    device::{DeviceError, Settings, VirtioFs, feature::ORDER_PLATFORM},
    dma::{ACCESS_PLATFORM, Direct, DmaChoice, DmaError},
    transport::TransportError,
};

use crate::{
    calls::{call, echo},
    fake::{ALL, Fake, FakeTransport, VERSION_1},
    memory::Heap,
    platform::{Device, SLEEPING, Threads, device, direct},
};

const FAILED: u8 = 128;

fn bring_up(fake: &Arc<Fake>, dma: &DmaChoice) -> Result<Device, DeviceError> {
    VirtioFs::new(FakeTransport(Arc::clone(fake)), Arc::new(Threads), dma, SLEEPING)
}

#[test]
fn a_device_is_brought_up_with_what_both_sides_know_and_reset_when_dropped() {
    let fake = Arc::new(Fake::new(ALL | 1 | 1 << 40, 20, 300));
    let device = bring_up(&fake, &direct()).unwrap();
    assert_eq!((device.features(), fake.taken_features()), (ALL, ALL));
    assert_eq!(fake.status_bits(), 1 | 2 | 4 | 8);
    assert_eq!((device.request_queues(), device.data_len_max()), (16, 1 << 20));
    drop(device);
    assert_eq!(fake.status_bits(), 0);
}

#[test]
fn a_device_has_a_queue_for_each_processor_unless_its_driver_or_it_says_otherwise() {
    for (offered, wanted, queues) in [(20, None, 3), (2, None, 2), (20, Some(5), 5), (4, Some(5), 4), (4, Some(0), 1)] {
        let settings = Settings { request_queues_max: wanted, ..SLEEPING };
        let device = device(&Arc::new(Fake::new(ALL, offered, 300)), settings);
        assert_eq!(device.request_queues(), queues, "{offered} {wanted:?}");
    }
}

#[test]
fn a_device_without_request_queues_or_version_1_is_refused() {
    let none = Arc::new(Fake::new(ALL, 0, 64));
    let broken = DeviceError::Transport(TransportError::Broken("it has no request queues"));
    assert_eq!(bring_up(&none, &direct()).err(), Some(broken));
    assert_eq!(none.status_bits(), FAILED);
    let old = Arc::new(Fake::new(0, 1, 64));
    let lacks = DeviceError::Transport(TransportError::Lacks("VIRTIO_F_VERSION_1"));
    assert_eq!(bring_up(&old, &direct()).err(), Some(lacks));
    let short = Arc::new(Fake::new(ALL, 1, 2));
    assert!(matches!(bring_up(&short, &direct()), Err(DeviceError::Transport(TransportError::Lacks(_)))));
}

#[test]
fn a_device_that_would_need_private_memory_is_refused_before_it_is_given_any() {
    let private = DmaChoice { is_memory_private: true, ..direct() };
    let fake = Arc::new(Fake::new(ALL, 1, 64));
    assert_eq!(bring_up(&fake, &private).err(), Some(DeviceError::Dma(DmaError::PrivateMemory)));
    assert_eq!((fake.status_bits(), fake.taken_features()), (FAILED, 0));

    // With VIRTIO_F_ACCESS_PLATFORM it goes through the platform, which offers nothing else here.
    let fake = Arc::new(Fake::new(ALL | ACCESS_PLATFORM, 1, 64));
    assert_eq!(bring_up(&fake, &private).err(), Some(DeviceError::Dma(DmaError::Unmappable)));
    let platform = DmaChoice { platform: private.direct.clone(), ..private };
    assert_eq!(bring_up(&fake, &platform).unwrap().features(), ALL | ACCESS_PLATFORM);
}

#[test]
fn a_device_in_hardware_is_driven_with_its_barriers() {
    let fake = Arc::new(Fake::new(ALL | ORDER_PLATFORM, 1, 64));
    let device = bring_up(&fake, &direct()).unwrap();
    assert_eq!((device.features(), fake.taken_features()), (ALL | ORDER_PLATFORM, ALL | ORDER_PLATFORM));
    std::thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        (0..100).for_each(|_| call(&device, 0, &[1; 100], &[2; 9]).unwrap());
        drop(device);
    });
}

#[test]
fn an_allocation_that_fails_leaves_nothing_behind_and_the_device_reset() {
    let mut nth = 0;
    loop {
        let heap: &'static Heap = Box::leak(Box::new(Heap::failing(nth)));
        let dma = DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() };
        let fake = Arc::new(Fake::new(VERSION_1, 2, 64));
        let outcome = bring_up(&fake, &dma);
        let is_up = outcome.is_ok();
        match outcome {
            Err(error) => assert!(matches!(error, DeviceError::Dma(DmaError::Exhausted { .. })), "{error}"),
            Ok(device) => std::thread::scope(|scope| {
                scope.spawn(|| fake.serve(1, echo));
                // A long head takes memory of its own, and no more is left.
                let error = call(&device, 0, &[1; 2000], &[]).unwrap_err();
                assert!(error.to_string().contains("are not free"), "{error}");
                // The slot was released with the error: short messages still succeed.
                (0..100).for_each(|_| call(&device, 0, &[1; 100], &[2; 9]).unwrap());
                drop(device);
            }),
        }
        assert_eq!(heap.live(), 0, "allocation {nth}");
        assert!(fake.resets() >= 2);
        if is_up {
            break;
        }
        nth += 1;
    }
    // Memory of a ring and of its slots, for three queues.
    assert_eq!(nth, 6);
}
