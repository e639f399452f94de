//! Lists of slices as the device sees them.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use transom_guest::{
    Errno,
    cache::{CacheMode, CacheOptions},
    device::VirtioFs,
    dma::{Bounce, Direct, DmaChoice, WhenFull},
    fs::{Fs, OpenOptions},
    memory::{IoSlice, IoSliceMut, IoSlices, IoSlicesMut},
    session::{Session, SessionConfig},
};
use transom_host::{
    passthrough::{Config, Passthrough},
    server::Server,
};
use transom_wire::{Opcode, header::InHeader};
use zerocopy::FromBytes as _;

use crate::{
    fake::{ALL, Chain, Fake, FakeTransport, VERSION_1},
    memory::{Heap, allocate},
    platform::{SLEEPING, Threads},
    server::answer,
};

const SLICES: usize = 40;

/// Lengths of the slices, none of them empty.
fn len_of(slice: usize) -> usize {
    1 + slice * 977 % 5000
}

/// Runs `act` on a share that the device serves, and returns its requests for data.
fn with_share(features: u64, dma: &DmaChoice, act: impl FnOnce(&Fs<Threads>)) -> Vec<(Opcode, Chain)> {
    let dir = tempfile::tempdir().unwrap();
    let fake = Arc::new(Fake::new(features, 1, 128));
    let server = Server::new(Passthrough::open(dir.path(), Config::default()).unwrap());
    let seen = Mutex::new(Vec::new());
    // Before its threads: one that came after the end would wait for a queue to start.
    let device = VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(Threads), dma, SLEEPING).unwrap();
    thread::scope(|scope| {
        for queue in 0..2 {
            let (fake, server, seen) = (&fake, &server, &seen);
            scope.spawn(move || {
                fake.serve(queue, |chain| {
                    let sent = chain.sent();
                    let opcode = InHeader::ref_from_prefix(&sent).unwrap().0.opcode.get();
                    for of in [Opcode::Read, Opcode::Write] {
                        if opcode == of as u32 {
                            seen.lock().unwrap().push((of, chain.clone()));
                        }
                    }
                    answer(server, chain)
                });
            });
        }
        let session = Session::begin(Arc::new(device), Arc::new(Threads), SessionConfig::default()).unwrap();
        let fs = Fs::mount(session, CacheOptions { mode: CacheMode::None, ..CacheOptions::default() });
        act(&fs);
        fs.unmount().unwrap();
    });
    seen.into_inner().unwrap()
}

/// Writes a list to a file and reads it into another; returns where their slices are.
fn write_and_read(fs: &Fs<Threads>) -> [Vec<(u64, u32)>; 2] {
    let file = fs.open("file", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
    let bytes: Vec<Vec<u8>> = (0..SLICES).map(|slice| vec![slice as u8 + 1; len_of(slice)]).collect();
    let total = bytes.iter().map(Vec::len).sum();
    let slices: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    assert_eq!(file.write_from_at(0, &mut IoSlices::new(&slices)), Ok(total));
    let mut found: Vec<Vec<u8>> = bytes.iter().rev().map(|bytes| vec![0; bytes.len()]).collect();
    let rooms: Vec<_> = found.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
    assert_eq!(file.read_into_at(0, &mut IoSlicesMut::new(&rooms)), Ok(total));
    let place = |start: *const u8, len: usize| (start.addr() as u64, len as u32);
    let places = [
        slices.iter().map(|slice| place(slice.as_ptr(), slice.len())).collect(),
        rooms.iter().map(|room| place(room.as_ptr(), room.len())).collect(),
    ];
    assert!(found.concat() == bytes.concat());
    file.close().unwrap();
    places
}

fn in_place() -> DmaChoice {
    let heap: &'static Heap = Box::leak(Box::new(Heap::new()));
    DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() }
}

#[test]
fn a_list_is_one_chain_with_a_descriptor_for_each_slice() {
    let mut places = [Vec::new(), Vec::new()];
    let seen = with_share(ALL, &in_place(), |fs| places = write_and_read(fs));
    let [(Opcode::Write, write), (Opcode::Read, read)] = &seen[..] else { panic!("{} requests", seen.len()) };
    assert_eq!(write.readable[1..], places[0]);
    assert_eq!(read.writable[1..], places[1]);
}

#[test]
fn a_list_without_indirect_tables_takes_as_many_requests_as_it_needs() {
    let seen = with_share(VERSION_1, &in_place(), |fs| drop(write_and_read(fs)));
    // A chain of four has two heads, so each list takes a request for two slices.
    assert_eq!(seen.len(), 2 * SLICES.div_ceil(2));
    assert!(seen.iter().all(|(_, chain)| chain.readable.len() + chain.writable.len() <= 4));
}

#[test]
fn a_list_outside_of_the_pool_is_copied_through_one_buffer() {
    let pool = Bounce::new(Arc::new(Threads), allocate(400 * 4096), WhenFull::Fail);
    let seen = with_share(ALL, &DmaChoice::always(Arc::new(pool)), |fs| drop(write_and_read(fs)));
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|(_, chain)| chain.readable.len() + chain.writable.len() == 3));
}

#[test]
fn each_allocation_that_fails_is_an_error() {
    let mut errors = 0;
    for nth in 0.. {
        let heap: &'static Heap = Box::leak(Box::new(Heap::failing(nth)));
        let dma = DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() };
        let fake = Arc::new(Fake::new(ALL, 1, 128));
        let Ok(device) = VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(Threads), &dma, SLEEPING) else {
            continue;
        };
        let dir = tempfile::tempdir().unwrap();
        let server = Server::new(Passthrough::open(dir.path(), Config::default()).unwrap());
        let is_done = thread::scope(|scope| {
            for queue in 0..2 {
                let (fake, server) = (&fake, &server);
                scope.spawn(move || fake.serve(queue, |chain| answer(server, chain)));
            }
            let session = Session::begin(Arc::new(device), Arc::new(Threads), SessionConfig::default()).unwrap();
            let fs = Fs::mount(session, CacheOptions { mode: CacheMode::None, ..CacheOptions::default() });
            let file = fs.open("file", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
            let bytes = [[5; 100]; 10];
            let slices: Vec<_> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
            let written = file.write_from_at(0, &mut IoSlices::new(&slices));
            assert!(matches!(written, Ok(1000) | Err(Errno::NOMEM)), "{written:?}");
            errors += u32::from(written.is_err());
            drop(file);
            fs.unmount().unwrap();
            written.is_ok()
        });
        assert_eq!(heap.live(), 0);
        if is_done {
            break;
        }
    }
    assert_eq!(errors, 1, "the table is the one allocation");
}
