//! The ring, compared with a model: what is in flight, and what the device has used in which order.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use transom_guest::{
    dma::{Direct, DmaOps},
    ring::{Barriers, Ring, RingSettings, Segment, Used},
    transport::Transport,
};

use crate::{
    fake::{ALL, Chain, Fake, FakeTransport, VERSION_1},
    memory::Heap,
};

#[derive(Debug, Clone)]
enum Step {
    Add { readable: usize, writable: usize },
    Take,
    Use(prop::sample::Index, u32),
    Pop,
    Arm,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1usize..4, 0usize..3).prop_map(|(readable, writable)| Step::Add { readable, writable }),
        Just(Step::Take),
        (any::<prop::sample::Index>(), any::<u32>()).prop_map(|(which, written)| Step::Use(which, written)),
        Just(Step::Pop),
        Just(Step::Arm),
    ]
}

fn ring(fake: &Arc<Fake>, is_rich: bool) -> Ring {
    let ops: Arc<dyn DmaOps> = Arc::new(Direct::new(&*Box::leak(Box::new(Heap::new()))));
    let settings = RingSettings {
        len: 8,
        chains_max: 8,
        segments_max: 6,
        is_indirect: is_rich,
        has_event_index: is_rich,
        barriers: if is_rich { Barriers::Platform } else { Barriers::Processors },
    };
    let ring = Ring::new(&ops, settings).unwrap();
    FakeTransport(Arc::clone(fake)).start_queue(1, 8, ring.addresses()).unwrap();
    ring
}

fn segments(count: usize, from: u64) -> Vec<Segment> {
    (0..count as u64).map(|at| Segment { address: from + 4096 * at, len_bytes: 100 + at as u32 }).collect()
}

fn pairs(segments: &[Segment]) -> Vec<(u64, u32)> {
    segments.iter().map(|segment| (segment.address, segment.len_bytes)).collect()
}

proptest! {
    #[test]
    fn chains_reach_the_device_whole_and_come_back_in_the_order_of_use(
        is_rich in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let fake = Arc::new(Fake::new(if is_rich { ALL } else { VERSION_1 }, 1, 8));
        let mut ring = ring(&fake, is_rich);
        let mut added: VecDeque<(u16, Vec<Segment>, Vec<Segment>)> = VecDeque::new();
        let mut held: Vec<(u16, Chain)> = Vec::new();
        let mut used: VecDeque<Used> = VecDeque::new();
        let mut lengths: HashMap<u16, usize> = HashMap::new();
        let mut device_waits = true;
        let mut cookie = 0;
        for step in steps {
            match step {
                Step::Add { readable, writable } => {
                    let (readable, writable) = (segments(readable, 1 << 20), segments(writable, 1 << 30));
                    let count = readable.len() + writable.len();
                    let free = if is_rich { 8 - lengths.len() } else { 8 - lengths.values().sum::<usize>() };
                    let has_room = free >= if is_rich { 1 } else { count };
                    prop_assert_eq!(ring.add(&readable, &writable, cookie).is_ok(), has_room);
                    if has_room {
                        prop_assert!(ring.needs_notify() || !device_waits);
                        device_waits = false;
                        lengths.insert(cookie, count);
                        added.push_back((cookie, readable, writable));
                        cookie += 1;
                    }
                }
                Step::Take => match (fake.pop(1), added.pop_front()) {
                    (Some(chain), Some((cookie, readable, writable))) => {
                        prop_assert_eq!(&chain.readable, &pairs(&readable));
                        prop_assert_eq!(&chain.writable, &pairs(&writable));
                        held.push((cookie, chain));
                    }
                    (None, None) => device_waits = true,
                    (chain, model) => prop_assert!(false, "{:?} where the model has {:?}", chain, model),
                },
                Step::Use(which, written) if !held.is_empty() => {
                    let (cookie, chain) = held.swap_remove(which.index(held.len()));
                    let written_bytes = written % (chain.room() as u32 + 1);
                    fake.push(1, chain.head.into(), written_bytes);
                    used.push_back(Used { cookie, written_bytes });
                }
                Step::Use(..) => {}
                Step::Pop => {
                    let popped = ring.pop();
                    prop_assert_eq!(popped, Ok(used.pop_front()));
                    if let Ok(Some(used)) = popped {
                        lengths.remove(&used.cookie);
                    }
                }
                Step::Arm => prop_assert_eq!(ring.arm(), !used.is_empty()),
            }
            prop_assert_eq!(usize::from(ring.in_flight()), lengths.len());
        }
    }

    #[test]
    fn a_ring_that_was_caught_lying_stays_broken(
        is_rich in any::<bool>(),
        lies in prop::collection::vec(
            (any::<u16>(), prop_oneof![0u32..10, any::<u32>()], any::<u32>(), 0u16..5),
            1..30,
        ),
    ) {
        let fake = Arc::new(Fake::new(if is_rich { ALL } else { VERSION_1 }, 1, 8));
        let mut ring = ring(&fake, is_rich);
        let (readable, writable) = (segments(1, 1 << 20), segments(1, 1 << 30));
        let mut broken = None;
        for (cookie, id, written, step) in lies {
            let _ = ring.add(&readable, &writable, cookie);
            fake.push_with_index(1, id, written, step);
            let before = ring.in_flight();
            match (ring.pop(), broken) {
                (popped, Some(broken)) => prop_assert_eq!(popped, Err(broken)),
                (Ok(Some(used)), None) => {
                    prop_assert!(used.written_bytes <= 100);
                    prop_assert_eq!(ring.in_flight(), before - 1);
                }
                (Ok(None), None) => {}
                (Err(error), None) => broken = Some(error),
            }
        }
    }
}
