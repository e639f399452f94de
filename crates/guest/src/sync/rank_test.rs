//! Locks taken in the right order, and in wrong orders.

extern crate std;

use alloc::boxed::Box;

use super::{
    Mutex, SleepLock,
    rank::{self, Held},
};
use crate::platform::{Event, Platform};

struct Checked;

impl Platform for Checked {
    type RawMutex = parking_lot::RawMutex;
    type Event = Never;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn with_held(check: impl FnOnce(&Held)) {
        std::thread_local!(static HELD: Held = const { Held::new() });
        HELD.with(check);
    }
}

/// No other thread exists to wake the caller.
#[derive(Default)]
struct Never;

impl Event for Never {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        is_done()
    }

    fn wake_all(&self) {}
}

type Size = SleepLock<Checked, { rank::SIZE }>;
type Ranges = Mutex<Checked, { rank::RANGES }, u32>;
type Pool = Mutex<Checked, { rank::POOL }, u32>;

#[test]
fn who_does_not_get_the_lock_leaves_it_with_its_holder() {
    let lock = Size::default();
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    assert!(lock.try_lock().is_none());
    drop(held);
    assert!(lock.try_lock().is_some());
    assert!(lock.try_lock().is_some());
}

#[test]
fn locks_in_order_are_taken_and_given_back_in_any_order() {
    let (size, ranges, pool) = (Size::default(), Ranges::default(), Pool::default());
    for _ in 0..2 {
        let (outer, middle) = (size.lock(), ranges.lock());
        let inner = pool.lock();
        drop(middle);
        drop(outer);
        drop(inner);
        rank::may_wait::<Checked>();
    }
}

#[test]
fn who_only_tries_may_hold_anything() {
    let (sizes, pool) = ([Size::default(), Size::default()], Pool::default());
    let _pool = pool.lock();
    let first = sizes[0].try_lock();
    assert!(first.is_some() && sizes[1].try_lock().is_some() && sizes[0].try_lock().is_none());
}

#[test]
#[should_panic(expected = "a lock of rank 3 is requested by a thread that holds one of rank Some(4)")]
fn a_lock_that_stands_above_one_that_is_held_is_refused() {
    let (ranges, pool) = (Ranges::default(), Pool::default());
    let _pool = pool.lock();
    drop(ranges.lock());
}

#[test]
#[should_panic(expected = "a lock of rank 4 is requested")]
fn two_locks_of_one_rank_are_refused() {
    let pools = [Pool::default(), Pool::default()];
    let _first = pools[0].lock();
    drop(pools[1].lock());
}

#[test]
#[should_panic(expected = "a lock of rank 1 is requested")]
fn a_lock_that_sleeps_is_refused_to_who_holds_one_that_is_for_moments() {
    let (size, ranges) = (Size::default(), Ranges::default());
    let _ranges = ranges.lock();
    drop(size.lock());
}

#[test]
#[should_panic(expected = "a thread waits that holds a lock of rank Some(3)")]
fn who_holds_a_lock_for_moments_does_not_wait() {
    let ranges = Ranges::default();
    let _ranges = ranges.lock();
    rank::may_wait::<Checked>();
}
