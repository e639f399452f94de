//! Which slot is taken, and when it is free again.

use alloc::{boxed::Box, vec::Vec};

use super::slots::Slots;
use crate::platform::{Event, Platform};

struct One;

impl Platform for One {
    type RawMutex = parking_lot::RawMutex;
    type Event = Silent;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

#[derive(Default)]
struct Silent;

impl Event for Silent {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        is_done()
    }

    fn wake_all(&self) {}
}

#[test]
fn as_many_slots_are_taken_as_there_are_the_lowest_first() {
    for count in [1, 2, 63, 64, 65, 128, 200, 1024] {
        let slots = Slots::<One>::new(count);
        assert_eq!(slots.count(), u32::from(count));
        let taken: Vec<_> = core::iter::from_fn(|| slots.take()).collect();
        assert!(taken.iter().copied().eq(0..count), "{count}");
        assert!(!slots.has_free() && slots.get(count - 1).is_some() && slots.get(count).is_none());
    }
}

#[test]
fn a_released_slot_is_the_only_free_one_and_knows_nothing_of_its_last_use() {
    let slots = Slots::<One>::new(130);
    while slots.take().is_some() {}
    for at in [0, 1, 63, 64, 127, 128, 129] {
        let slot = slots.get(at).unwrap();
        slot.set_ticket(7);
        slot.depart();
        assert!(!slot.is_done());
        slot.arrive(5);
        assert!(slot.is_done() && slot.written_bytes() == 5 && slot.ticket() == 7);
        slots.release(at);
        assert!(slots.has_free() && !slot.is_done() && slot.ticket() == 0);
        assert_eq!((slots.take(), slots.take()), (Some(at), None), "{at}");
    }
    slots.release(130);
    assert!(!slots.has_free(), "there is no such slot");
}

#[test]
fn of_several_free_slots_the_lowest_is_taken() {
    let slots = Slots::<One>::new(130);
    while slots.take().is_some() {}
    [129, 70, 3, 66].into_iter().for_each(|slot| slots.release(slot));
    assert_eq!([(); 5].map(|()| slots.take()), [Some(3), Some(66), Some(70), Some(129), None]);
}
