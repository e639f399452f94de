//! A kernel's own transport and `Hal`, as virtio-drivers has them, with the real server behind the rings.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "../../../guest/tests/device/fake.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod fake;
mod hal;
#[path = "../../../guest/tests/device/memory.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod memory;
#[path = "../../../guest/tests/device/platform.rs"]
#[allow(dead_code, reason = "the tests of the device use more of it")]
mod platform;
#[path = "../../../guest/tests/device/server.rs"]
mod server;
mod stock;

use std::{fs, sync::Arc};

use fake::Fake;
use hal::Copying;
use platform::Threads;
use server::serve_directory;
use stock::Stock;
use transom_guest::{
    cache::{CacheMode, CacheOptions},
    device::{DeviceError, Settings, VirtioFs},
    dma::DmaChoice,
    fs::Fs,
    memory::{IoSliceMut, IoSlicesMut},
    session::{Session, SessionConfig},
    transport::{Interrupts, TransportError},
};
use transom_virtio_drivers::{Driven, HalMemory};

type Device = VirtioFs<Threads, Driven<Stock, parking_lot::RawMutex>>;

fn bring_up(fake: &Arc<Fake>) -> Result<Device, DeviceError> {
    let transport = Driven::new(Stock::new(fake), Interrupts::Polling)?;
    let dma = DmaChoice::always(Arc::new(HalMemory::<Copying>::new()));
    VirtioFs::new(transport, Arc::new(Threads), &dma, Settings::default())
}

#[test]
fn files_are_used_through_a_kernels_own_transport_and_a_hal_that_copies() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hello"), "hello, kernel\n").unwrap();
    let fake = Arc::new(Fake::new(fake::VERSION_1 | fake::EVENT_IDX, 2, 64));
    let device = bring_up(&fake).unwrap();
    assert_eq!(fake.status_bits(), 0b1111);
    let server = serve_directory(&fake, dir.path());
    let session = Session::begin(Arc::new(device), Arc::new(Threads), SessionConfig::default()).unwrap();
    let share = Fs::mount(session, CacheOptions { mode: CacheMode::None, ..CacheOptions::default() });

    let mut room = [b'x'; 100];
    let file = share.open_read("hello").unwrap();
    assert_eq!(file.read(&mut room).unwrap(), 14);
    assert_eq!(&room[..14], b"hello, kernel\n");
    assert_eq!(room[14..], [b'x'; 86], "a short reply left something else in the caller's memory");
    assert!(hal::was_for_reply(&room));
    // A `Hal` copies all of a buffer back. Others may have written to these meanwhile, through copies of the slice.
    let mut of_many = [b'y'; 100];
    let slice = IoSliceMut::new(&mut of_many);
    assert_eq!(file.read_into_at(0, &mut slice.clone()).unwrap(), 14);
    assert_eq!(file.read_into_at(0, &mut IoSlicesMut::new(&[slice])).unwrap(), 14);
    assert_eq!(&of_many[..14], b"hello, kernel\n");
    assert_eq!(of_many[14..], [b'y'; 86]);
    assert!(!hal::was_for_reply(&of_many));
    file.close().unwrap();
    share.create("made").unwrap().write_all(&[7; 100_000]).unwrap();
    assert_eq!(fs::read(dir.path().join("made")).unwrap(), [7; 100_000]);

    share.unmount().unwrap();
    server.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(hal::live(), 0, "what was shared or allocated was not given back");
}

#[test]
fn a_device_that_is_legacy_gone_or_short_of_memory_is_an_error() {
    let fake = Arc::new(Fake::new(fake::VERSION_1, 1, 64));
    let legacy = Driven::<_, parking_lot::RawMutex>::new(Stock::new(&fake).legacy(), Interrupts::Polling);
    assert_eq!(legacy.err(), Some(TransportError::Legacy { device_type: 26 }));
    let absent = Driven::<_, parking_lot::RawMutex>::new(Stock::new(&fake).absent(), Interrupts::Polling).unwrap();
    let dma = DmaChoice::always(Arc::new(HalMemory::<Copying>::new()));
    let gone = VirtioFs::new(absent, Arc::new(Threads), &dma, Settings::default());
    assert_eq!(gone.err(), Some(DeviceError::Transport(TransportError::Gone)));
    let dma = DmaChoice::always(Arc::new(HalMemory::<hal::Exhausted>::new()));
    let transport = Driven::<_, parking_lot::RawMutex>::new(Stock::new(&fake), Interrupts::Polling).unwrap();
    let short = VirtioFs::new(transport, Arc::new(Threads), &dma, Settings::default());
    assert!(matches!(short.err(), Some(DeviceError::Dma(_))));
}
