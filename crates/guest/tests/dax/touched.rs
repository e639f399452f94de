//! Times and rights of a file that is written through the window, of which the server sees nothing by itself.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use transom_guest::{
    Platform,
    dax::RANGE_LEN,
    fs::{File, OpenOptions},
    platform::Held,
    volume::SetTime,
};
use transom_host::passthrough::Passthrough;
use transom_wire::{Opcode, linux::O_DSYNC};

use crate::{
    fake::share_on,
    peer::{Peer, Spin},
};

const SECOND_NS: u64 = 1_000_000_000;
/// How long copies go on before the server is sent a write.
const TOUCH_NS: u64 = 10_000_000;

/// A platform whose clock the test moves.
struct Clock(AtomicU64);

impl Platform for Clock {
    type RawMutex = parking_lot::RawMutex;
    type Event = Spin;

    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

/// A file of two ranges, open with `flags`.
struct World {
    clock: Arc<Clock>,
    peer: Arc<Peer<Passthrough>>,
    file: File<Clock>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(flags: u32) -> Self {
        let clock = Arc::new(Clock(AtomicU64::new(SECOND_NS)));
        let (dir, _window, fs, peer) = share_on(Arc::clone(&clock), 4);
        std::fs::write(dir.path().join("file"), vec![0; 2 * RANGE_LEN as usize]).unwrap();
        let file = fs.open("file", &OpenOptions::new().read(true).write(true).custom_flags(flags)).unwrap();
        Self { clock, peer, file, _dir: dir }
    }

    /// Returns how many requests of this kind `act` sends.
    fn asked(&self, opcode: Opcode, act: impl FnOnce(&File<Clock>)) -> u64 {
        let count = || self.peer.counts().get(opcode.name()).copied().unwrap_or_default();
        let before = count();
        act(&self.file);
        count() - before
    }

    /// Returns how many requests a write of some bytes takes.
    fn write(&self) -> u64 {
        self.asked(Opcode::Write, |file| assert_eq!(file.write_at(100, &[1; 50]), Ok(50)))
    }

    /// Returns how many requests set a time before what was written is durable.
    fn sync(&self) -> u64 {
        self.asked(Opcode::Setattr, |file| file.sync_all().unwrap())
    }

    fn pass(&self, ns: u64) {
        self.clock.0.fetch_add(ns, SeqCst);
    }
}

#[test]
fn the_first_write_is_sent_and_then_one_every_ten_milliseconds() {
    let world = World::new(0);
    assert_eq!([world.write(), world.write(), world.write()], [1, 0, 0]);
    world.pass(TOUCH_NS - 1);
    assert_eq!([world.write(), world.write()], [0, 0]);
    world.pass(1);
    assert_eq!([world.write(), world.write()], [1, 0]);
}

#[test]
fn the_time_of_copies_is_set_once_before_they_are_durable() {
    let world = World::new(0);
    assert_eq!((world.write(), world.sync()), (1, 0), "the server has seen the write");
    assert_eq!((world.write(), world.sync(), world.sync()), (0, 1, 0));
    // Setting the time explicitly overrides what was written before; setting something else does not.
    world.write();
    world.file.set_times(SetTime::Keep, SetTime::At(5, 0)).unwrap();
    assert_eq!(world.sync(), 0);
    assert_eq!(world.file.metadata().unwrap().attr().mtime.get(), 5);
    world.write();
    world.write();
    world.file.set_times(SetTime::At(5, 0), SetTime::Keep).unwrap();
    assert_eq!(world.sync(), 1);
    assert!(world.file.metadata().unwrap().attr().mtime.get() > 5);
    // Closing does the same.
    assert_eq!(world.write() + world.write(), 1, "rights may have been set");
    let World { file, peer, .. } = world;
    let count = || peer.counts()[Opcode::Setattr.name()];
    let before = count();
    file.close().unwrap();
    assert_eq!(count() - before, 1);
}

/// A write clears set-id bits, which the server does when it sees the write.
#[test]
fn a_write_after_rights_were_set_is_sent() {
    let world = World::new(0);
    assert_eq!([world.write(), world.write()], [1, 0]);
    world.file.set_permissions(0o4777).unwrap();
    assert_eq!([world.write(), world.write()], [1, 0]);
}

/// open(2): with O_DSYNC, a write returns once its data is durable, which a copy is not.
#[test]
fn each_write_of_a_file_that_is_open_for_durable_writes_is_sent() {
    let world = World::new(O_DSYNC);
    assert_eq!([world.write(), world.write(), world.write()], [1, 1, 1]);
}

#[test]
fn the_size_below_which_bytes_are_copied_is_asked_for_once_a_second() {
    let world = World::new(0);
    let read = || {
        world.asked(Opcode::Getattr, |file| {
            assert_eq!(file.read_at(0, &mut [0; 100]), Ok(100));
        })
    };
    read();
    assert_eq!([read(), read()], [0, 0]);
    world.pass(SECOND_NS - 1);
    assert_eq!(read(), 0);
    world.pass(1);
    assert_eq!([read(), read()], [1, 0]);
}
