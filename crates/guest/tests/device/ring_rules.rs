//! The ring's rules one by one, against the memory that a device sees (virtio 1.3 §2.7).

use std::{collections::BTreeSet, sync::Arc, sync::atomic::Ordering::SeqCst};

use transom_guest::{
    dma::{Direct, DmaMemory, DmaOps},
    ring::{Barriers, Broken, Full, Ring, RingSettings, Segment, Used},
};

use crate::memory::{Heap, at};

const LEN: u16 = 4;
const ROOM: u32 = 100;

const PLAIN: RingSettings = RingSettings {
    len: LEN,
    chains_max: LEN,
    segments_max: LEN,
    is_indirect: false,
    has_event_index: false,
    barriers: Barriers::Processors,
};
const EVENTS: RingSettings = RingSettings { has_event_index: true, ..PLAIN };
const TABLES: RingSettings = RingSettings { is_indirect: true, ..PLAIN };

/// A ring, and what a device sees of it.
struct Both {
    ring: Ring,
    len: u16,
    descriptors: DmaMemory,
    available: DmaMemory,
    used: DmaMemory,
    used_index: u16,
}

impl Both {
    fn new(settings: RingSettings) -> Self {
        let ops: Arc<dyn DmaOps> = Arc::new(Direct::new(&*Box::leak(Box::new(Heap::new()))));
        let ring = Ring::new(&ops, settings).unwrap();
        let (addresses, len) = (ring.addresses(), usize::from(settings.len));
        let descriptors = at(addresses.descriptors, 16 * len);
        let (available, used) = (at(addresses.available, 6 + 2 * len), at(addresses.used, 6 + 8 * len));
        Self { ring, len: settings.len, descriptors, available, used, used_index: 0 }
    }

    fn add(&mut self, readable: &[Segment], writable: &[Segment], cookie: u16) -> Result<(), Full> {
        self.ring.add(readable, writable, cookie)
    }

    fn add_one(&mut self, cookie: u16) {
        self.add(&[segment(1, 8)], &[segment(2, ROOM)], cookie).unwrap();
    }

    fn available_index(&self) -> u16 {
        self.available.load_u16(2, SeqCst)
    }

    /// Returns the head at an index of the available ring.
    fn head(&self, index: u16) -> u16 {
        self.available.load_u16(4 + 2 * usize::from(index % self.len), SeqCst)
    }

    /// The latest head.
    fn last_head(&self) -> u16 {
        self.head(self.available_index().wrapping_sub(1))
    }

    /// Uses a chain, as the device does.
    fn put(&mut self, id: u32, written: u32) {
        let element = 4 + 8 * usize::from(self.used_index % self.len);
        self.used.write(element, &id.to_le_bytes());
        self.used.write(element + 4, &written.to_le_bytes());
        self.advance(1);
    }

    fn advance(&mut self, by: u16) {
        self.used_index = self.used_index.wrapping_add(by);
        self.used.store_u16(2, self.used_index, SeqCst);
    }

    /// Asks for a notification of that index, or, without an event index, sets the flag against any.
    fn set_event(&self, index: u16) {
        self.used.store_u16(4 + 8 * usize::from(self.len), index, SeqCst);
    }

    fn descriptor(&self, index: u16) -> (u64, u32, u16, u16) {
        descriptor(&self.descriptors, index)
    }
}

fn descriptor(table: &DmaMemory, index: u16) -> (u64, u32, u16, u16) {
    let mut bytes = [0; 16];
    table.read(16 * usize::from(index), &mut bytes);
    let number = |from: usize| u16::from_le_bytes([bytes[from], bytes[from + 1]]);
    let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    (address, u32::from_le_bytes(bytes[8..12].try_into().unwrap()), number(12), number(14))
}

fn segment(page: u64, len_bytes: u32) -> Segment {
    Segment { address: page << 12, len_bytes }
}

#[test]
fn the_parts_are_aligned_and_do_not_overlap() {
    for len in [1u16, 2, 4, 16, 128, 1024] {
        for is_indirect in [false, true] {
            let settings = RingSettings { len, chains_max: len, segments_max: len.min(8), is_indirect, ..PLAIN };
            let ops: Arc<dyn DmaOps> = Arc::new(Direct::new(&*Box::leak(Box::new(Heap::new()))));
            let mut ring = Ring::new(&ops, settings).unwrap();
            let addresses = ring.addresses();
            let entries = u64::from(len);
            assert_eq!((addresses.descriptors % 16, addresses.available % 2, addresses.used % 4), (0, 0, 0));
            assert!(addresses.descriptors + 16 * entries <= addresses.available);
            // The device writes what follows on cache lines that the driver does not write.
            assert!(addresses.used % 64 == 0 && addresses.available + 6 + 2 * entries <= addresses.used);
            if !is_indirect {
                continue;
            }
            let mut tables = BTreeSet::from([addresses.used + 6 + 8 * entries]);
            for cookie in 0..len {
                ring.add(&[segment(1, 1)], &[], cookie).unwrap();
                let head =
                    at(addresses.available, 6 + 2 * usize::from(len)).load_u16(4 + 2 * usize::from(cookie), SeqCst);
                tables.insert(descriptor(&at(addresses.descriptors, 16 * usize::from(len)), head).0);
            }
            let tables: Vec<_> = tables.into_iter().collect();
            assert_eq!(tables.len(), usize::from(len) + 1);
            // Each has room for the longest chain, after the used ring.
            assert!(tables[1] >= tables[0] && tables[1..].windows(2).all(|two| two[1] - two[0] >= 16 * entries.min(8)));
        }
    }
}

#[test]
fn a_chain_is_linked_first_what_is_read_then_what_is_written() {
    let mut both = Both::new(PLAIN);
    both.add(&[segment(1, 10), segment(2, 20)], &[segment(3, 30)], 0).unwrap();
    assert_eq!(both.available_index(), 1);
    let (address, len, flags, next) = both.descriptor(both.head(0));
    assert_eq!((address, len, flags), (1 << 12, 10, 1));
    let (address, len, flags, next) = both.descriptor(next);
    assert_eq!((address, len, flags), (2 << 12, 20, 1));
    let (address, len, flags, _) = both.descriptor(next);
    assert_eq!((address, len, flags), (3 << 12, 30, 2));
}

#[test]
fn a_table_holds_the_whole_chain_and_takes_one_descriptor() {
    let mut both = Both::new(TABLES);
    for cookie in 0..LEN {
        both.add(&[segment(1, 10), segment(2, 20)], &[segment(3, 30)], cookie).unwrap();
        let (address, len, flags, _) = both.descriptor(both.head(cookie));
        assert_eq!((len, flags), (48, 4), "the bytes of three descriptors, INDIRECT alone");
        let table = at(address, 48);
        assert_eq!(descriptor(&table, 0), (1 << 12, 10, 1, 1));
        assert_eq!(descriptor(&table, 1), (2 << 12, 20, 1, 2));
        let (address, len, flags, _) = descriptor(&table, 2);
        assert_eq!((address, len, flags), (3 << 12, 30, 2));
    }
    assert_eq!(both.add(&[segment(1, 1)], &[], 9), Err(Full));
    assert_eq!(both.ring.in_flight(), LEN);
}

#[test]
fn a_chain_is_as_long_as_the_settings_allow_and_not_longer() {
    let settings = RingSettings { segments_max: 3, ..PLAIN };
    let long = |count: usize| {
        std::panic::catch_unwind(|| {
            let mut both = Both::new(settings);
            let segments: Vec<_> = (0..count as u64).map(|page| segment(page + 1, 1)).collect();
            both.add(&segments, &[], 0)
        })
    };
    assert!(long(3).is_ok_and(|added| added == Ok(())));
    assert!(long(4).is_err() && long(0).is_err());
}

#[test]
fn a_ring_of_an_impossible_length_is_not_made() {
    let made = |settings: RingSettings| std::panic::catch_unwind(|| drop(Both::new(settings))).is_ok();
    let with = |len, chains_max, segments_max| RingSettings { len, chains_max, segments_max, ..PLAIN };
    assert!(made(with(1024, 1024, 1024)) && made(with(8, 8, 8)) && made(with(8, 1, 1)));
    assert!(!made(with(2048, 8, 8)), "longer than any");
    assert!(!made(with(6, 6, 6)), "no power of two");
    assert!(!made(with(8, 9, 8)) && !made(with(8, 8, 9)));
}

#[test]
fn a_full_ring_takes_no_chain_until_one_comes_back() {
    // By descriptors.
    let mut both = Both::new(PLAIN);
    both.add(&[segment(1, 1)], &[segment(2, 1), segment(3, 1)], 0).unwrap();
    assert_eq!(both.add(&[segment(1, 1)], &[segment(2, 1)], 1), Err(Full));
    assert_eq!((both.ring.in_flight(), both.available_index()), (1, 1), "nothing was added");
    both.add(&[segment(1, 1)], &[], 2).unwrap();
    assert_eq!(both.add(&[segment(1, 1)], &[], 3), Err(Full));
    let first = both.head(0);
    both.put(first.into(), 0);
    assert_eq!(both.ring.pop(), Ok(Some(Used { cookie: 0, written_bytes: 0 })));
    both.add(&[segment(1, 1)], &[segment(2, 1), segment(3, 1)], 4).unwrap();

    // By chains.
    let mut both = Both::new(RingSettings { chains_max: 2, ..PLAIN });
    both.add(&[segment(1, 1)], &[], 0).unwrap();
    both.add(&[segment(1, 1)], &[], 1).unwrap();
    assert_eq!(both.add(&[segment(1, 1)], &[], 2), Err(Full));
}

#[test]
fn indices_and_descriptors_wrap_around_without_an_end() {
    for settings in [PLAIN, EVENTS, TABLES] {
        let mut both = Both::new(settings);
        for round in 0..70_000u32 {
            let cookie = round as u16;
            both.add_one(cookie);
            assert_eq!(both.available_index(), cookie.wrapping_add(1));
            assert!(!both.ring.has_used());
            let head = both.last_head();
            assert!(head < LEN);
            both.put(head.into(), 1 + round % ROOM);
            assert!(both.ring.has_used());
            assert_eq!(both.ring.pop(), Ok(Some(Used { cookie, written_bytes: 1 + round % ROOM })));
            assert_eq!(both.ring.pop(), Ok(None));
        }
        assert_eq!(both.ring.in_flight(), 0);
    }
}

#[test]
fn the_device_is_notified_of_the_index_it_names_and_of_no_other() {
    // Also where the indices wrap around.
    for base in [0u16, u16::MAX - 5] {
        let mut both = Both::new(EVENTS);
        for round in 0..base {
            both.add_one(round);
            both.put(both.last_head().into(), 0);
            both.ring.pop().unwrap();
            both.ring.needs_notify();
        }
        let next = |by: u16| base.wrapping_add(by);
        assert!(!both.ring.needs_notify(), "nothing was added");
        both.set_event(next(1));
        both.add_one(0);
        assert!(!both.ring.needs_notify(), "it named the one after");
        both.add_one(1);
        assert!(both.ring.needs_notify());
        assert!(!both.ring.needs_notify(), "once");
        both.set_event(next(1));
        both.add(&[segment(1, 1)], &[], 2).unwrap_err();
        for _ in 0..2 {
            both.put(both.head(both.used_index).into(), 0);
            both.ring.pop().unwrap().unwrap();
        }
        both.add_one(3);
        assert!(!both.ring.needs_notify(), "it has been told of that index");
        both.set_event(next(3));
        both.add_one(4);
        assert!(both.ring.needs_notify());
    }
}

#[test]
fn a_batch_is_notified_of_if_any_of_it_was_named() {
    for named in 0..6u16 {
        let mut both = Both::new(RingSettings { len: 8, chains_max: 8, ..EVENTS });
        both.set_event(named);
        both.add(&[segment(1, 1)], &[], 0).unwrap();
        assert_eq!(both.ring.needs_notify(), named == 0);
        (1..4).for_each(|cookie| both.add(&[segment(1, 1)], &[], cookie).unwrap());
        assert_eq!(both.ring.needs_notify(), (1..4).contains(&named), "{named}");
    }
}

#[test]
fn without_an_event_index_the_flag_decides() {
    let mut both = Both::new(PLAIN);
    // What would be an event index is not looked at, and unknown flags are not either.
    both.set_event(77);
    both.used.store_u16(0, 2, SeqCst);
    both.add(&[segment(1, 1)], &[], 0).unwrap();
    assert!(both.ring.needs_notify());
    both.used.store_u16(0, 1, SeqCst);
    both.add(&[segment(1, 1)], &[], 1).unwrap();
    assert!(!both.ring.needs_notify());
}

#[test]
fn interrupts_are_wanted_once_the_ring_is_armed() {
    let mut both = Both::new(PLAIN);
    assert_eq!(both.available.load_u16(0, SeqCst), 1, "not before");
    both.add_one(0);
    assert!(!both.ring.arm());
    assert_eq!(both.available.load_u16(0, SeqCst), 0);
    both.ring.disarm();
    assert_eq!(both.available.load_u16(0, SeqCst), 1);
    both.put(both.last_head().into(), 0);
    assert!(both.ring.arm(), "there may be no interrupt for it");

    // With an event index: for the next chain, whatever the flags, which are 0.
    let mut both = Both::new(EVENTS);
    let event = |both: &Both| both.available.load_u16(4 + 2 * usize::from(LEN), SeqCst);
    for cookie in 0..3 {
        both.add_one(cookie);
        assert!(!both.ring.arm());
        assert_eq!((both.available.load_u16(0, SeqCst), event(&both)), (0, cookie));
        both.put(both.last_head().into(), 0);
        assert!(both.ring.arm());
        both.ring.pop().unwrap();
        both.ring.disarm();
        assert_eq!(both.available.load_u16(0, SeqCst), 0);
    }
}

#[test]
fn a_device_that_breaks_a_rule_is_not_believed_again() {
    type Lie = (&'static str, fn(&mut Both), bool);
    let lies: [Lie; 7] = [
        ("all of the room", |both| both.put(both.head(0).into(), ROOM), true),
        ("a byte more", |both| both.put(both.head(0).into(), ROOM + 1), false),
        ("a chain that is not in flight", |both| both.put(u32::from(both.head(0) ^ 1), 0), false),
        ("a chain beyond the ring", |both| both.put(LEN.into(), 0), false),
        ("a number whose lower half is a chain", |both| both.put(u32::from(both.head(0)) | 1 << 16, 0), false),
        (
            "one chain too many",
            |both| {
                both.put(both.head(0).into(), 0);
                both.advance(1)
            },
            false,
        ),
        (
            "an index that goes back",
            |both| {
                both.put(both.head(0).into(), 0);
                both.advance(u16::MAX - 1)
            },
            false,
        ),
    ];
    for settings in [PLAIN, TABLES] {
        for (what, lie, is_fine) in lies {
            let mut both = Both::new(settings);
            both.add_one(0);
            lie(&mut both);
            let popped = both.ring.pop();
            assert_eq!(popped.is_ok(), is_fine, "{what}");
            if let Err(Broken(why)) = popped {
                both.put(both.head(0).into(), 0);
                assert_eq!(both.ring.pop(), Err(Broken(why)), "{what}");
            }
        }
    }
    // A chain that was used already.
    let mut both = Both::new(PLAIN);
    both.add_one(0);
    both.add_one(1);
    let head = both.head(0);
    both.put(head.into(), 0);
    both.put(head.into(), 0);
    assert!(both.ring.pop().is_ok());
    assert!(both.ring.pop().is_err());
}

#[test]
fn a_look_tells_what_the_device_has_used_and_nobody_has_popped() {
    let mut both = Both::new(PLAIN);
    assert!(!both.ring.has_used());
    for cookie in 0..10 {
        both.add_one(cookie);
        assert!(!both.ring.has_used());
        both.put(both.last_head().into(), 0);
        assert!(both.ring.has_used());
        assert_eq!(both.ring.pop(), Ok(Some(Used { cookie, written_bytes: 0 })));
        assert!(!both.ring.has_used());
    }
}
