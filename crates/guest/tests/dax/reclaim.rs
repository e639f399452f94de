//! The thread that reclaims ranges that were not used for long.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use transom_guest::{
    Platform,
    dax::{Access, RANGE_LEN},
    fs::OpenOptions,
    platform::{Event, Held},
};

use crate::fake::share_on;

/// A platform with threads, whose clock runs fast.
#[derive(Default)]
struct Hurried;

impl Platform for Hurried {
    type RawMutex = parking_lot::RawMutex;
    type Event = Polled;

    fn now_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64 * 20
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        thread::spawn(task);
        Ok(())
    }

    fn with_held(check: impl FnOnce(&Held)) {
        thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

#[derive(Default)]
struct Polled;

impl Event for Polled {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        while !is_done() {
            if deadline_ns.is_some_and(|deadline_ns| Hurried.now_ns() >= deadline_ns) {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn wake_all(&self) {}
}

#[test]
fn a_fifth_of_the_window_is_freed_of_what_is_idle_without_a_further_call() {
    let (_dir, window, fs, _peer) = share_on(Arc::new(Hurried), 10);
    let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    file.set_len(10 * RANGE_LEN).unwrap();
    let inode = file.inode();
    let used = inode.pin(0, Access::Read).unwrap().expect("there is room");
    for index in 1..10 {
        drop(inode.pin(index, Access::Read).unwrap().expect("there is room"));
    }
    let counts = || fs.volume().window().unwrap().counts();
    let begin = Instant::now();
    while counts().free < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is taken back: {:?}", counts());
        thread::yield_now();
    }
    assert!(counts().reclaimed >= 2);
    // What is in use stays, and reclaimed ranges are unmapped.
    let mappings = window.mappings.lock().unwrap();
    assert_eq!(mappings[&(used.window_offset() / RANGE_LEN)].index, 0);
    assert!(mappings.len() <= 8);
}
