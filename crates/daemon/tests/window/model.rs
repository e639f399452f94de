//! Random sequences against a model of the window: a map from range to file and place.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt};

use proptest::{
    collection::vec,
    prelude::*,
    sample::subsequence,
    test_runner::{Config, TestRunner},
};
use transom_frontend::{FrontEnd, fuse::Session, queue::Queue};
use transom_wire::ops::init::InitFlags;

use crate::host::{Kind, QUEUES, RANGE, RANGES, Share, contents, lookup};

/// Ranges of each file.
const FILE_RANGES: u64 = 3;
const FILES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// Some ranges of a file, at a place that may reach beyond the window.
    Map {
        file: usize,
        file_range: u64,
        range: u64,
        count: u64,
        writes: bool,
    },
    Unmap {
        range: u64,
        count: u64,
    },
    UnmapMany {
        ranges: Vec<u64>,
    },
    Init,
    Destroy,
    Reset,
    Pause,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    let map = (0..FILES, 0..FILE_RANGES, 0..RANGES, 1..3u64, any::<bool>())
        .prop_map(|(file, file_range, range, count, writes)| Step::Map { file, file_range, range, count, writes });
    prop_oneof![
        12 => map,
        5 => (0..RANGES, 1..4u64).prop_map(|(range, count)| Step::Unmap { range, count }),
        1 => subsequence((0..RANGES).collect::<Vec<_>>(), 0..6).prop_map(|ranges| Step::UnmapMany { ranges }),
        1 => Just(Step::Init),
        1 => Just(Step::Destroy),
        1 => Just(Step::Reset),
        1 => Just(Step::Pause),
        1 => Just(Step::Reconnect),
    ]
}

/// What the guest knows of one connection.
struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
    nodeids: Vec<u64>,
}

impl Guest {
    fn connect(share: &Share) -> Self {
        let (front_end, session) = share.session();
        let mut guest = Self { front_end, session, nodeids: Vec::new() };
        guest.look_up(share);
        guest
    }

    fn look_up(&mut self, share: &Share) {
        self.nodeids =
            (0..FILES).map(|file| lookup(&mut self.session, &share.path().join(format!("file{file}")))).collect();
    }
}

fn run(share: &Share, steps: &[Step]) {
    let inodes: Vec<u64> =
        (0..FILES).map(|file| share.path().join(format!("file{file}")).metadata().unwrap().ino()).collect();
    let mut model = BTreeMap::<u64, (usize, u64)>::new();
    let mut guest = Guest::connect(share);
    let mut was_paused = false;
    for step in steps {
        // INIT after a stop means to the daemon that a front end which unmaps at a reset has had one.
        let step = match step {
            Step::Init if was_paused && share.kind == Kind::Qemu => &Step::Reset,
            other => other,
        };
        was_paused = match step {
            Step::Pause => true,
            Step::Init | Step::Destroy | Step::Reset | Step::Reconnect => false,
            Step::Map { .. } | Step::Unmap { .. } | Step::UnmapMany { .. } => was_paused,
        };
        match step {
            &Step::Map { file, file_range, range, count, writes } => {
                let (at, from) = (range * RANGE, file_range * RANGE);
                let answer = guest.session.setupmapping(guest.nodeids[file], from, count * RANGE, at, writes);
                let is_inside = range + count <= RANGES;
                let is_in_file = file_range + count <= FILE_RANGES || share.kind == Kind::Crosvm;
                assert_eq!(answer.is_ok(), is_inside && is_in_file, "{step:?}: {answer:?}");
                for index in 0..count {
                    if is_inside && is_in_file {
                        model.insert(range + index, (file, file_range + index));
                    } else if is_inside && file_range + index < FILE_RANGES {
                        // Of a request that failed in the middle nothing stays.
                        model.remove(&(range + index));
                    }
                }
            }
            &Step::Unmap { range, count } => {
                let is_inside = range + count <= RANGES;
                let answer = guest.session.removemapping(guest.nodeids[0], &[(range * RANGE, count * RANGE)]);
                assert_eq!(answer.is_ok(), is_inside, "{step:?}: {answer:?}");
                if is_inside {
                    model.retain(|&mapped, _| !(range..range + count).contains(&mapped));
                }
            }
            Step::UnmapMany { ranges } => {
                let named: Vec<_> = ranges.iter().map(|range| (range * RANGE, RANGE)).collect();
                guest.session.removemapping(guest.nodeids[1], &named).unwrap();
                model.retain(|range, _| !ranges.contains(range));
            }
            Step::Init => {
                guest.session.init(InitFlags::all()).unwrap();
                guest.look_up(share);
                model.clear();
            }
            Step::Destroy => {
                guest.session.destroy().unwrap();
                model.clear();
                guest.session.init(InitFlags::all()).unwrap();
                guest.look_up(share);
            }
            Step::Reset => {
                guest.front_end.stop_and_reset(&QUEUES[..1]).unwrap();
                guest.session = Session::begin(guest.front_end.start_queue(QUEUES[0]).unwrap()).unwrap();
                guest.look_up(share);
                model.clear();
            }
            Step::Pause => {
                let base = guest.front_end.stop_queue(QUEUES[0]).unwrap();
                guest.front_end.restart_queue(QUEUES[0], &guest.session.exchange, base).unwrap();
            }
            Step::Reconnect => {
                // The daemon serves one front end at a time.
                let Guest { front_end, session, .. } = guest;
                drop((session, front_end));
                guest = Guest::connect(share);
                model.clear();
            }
        }
        let window = guest.front_end.expect_window();
        let shown = |(&range, &(file, file_range)): (&u64, &(usize, u64))| (range, inodes[file], file_range);
        let found = |mapping: &transom_frontend::window::Mapping| {
            (mapping.offset / RANGE, mapping.file.1, mapping.file_offset / RANGE)
        };
        let (expected, found): (Vec<_>, Vec<_>) =
            (model.iter().map(shown).collect(), window.mappings().iter().map(found).collect());
        assert_eq!(found, expected, "after {step:?}");
        share.agrees(&guest.front_end);
        for (range, &(file, file_range)) in &model {
            if file_range < FILE_RANGES {
                let expected = &contents(FILE_RANGES * RANGE, file as u8)[(file_range * RANGE) as usize..][..9];
                assert_eq!(window.read(range * RANGE, 9).unwrap(), expected);
            }
        }
    }
}

#[test]
fn any_sequence_leaves_the_mappings_that_a_model_has() {
    for kind in Kind::ALL {
        let share = Share::thread(kind);
        (0..FILES).for_each(|file| drop(share.file(&format!("file{file}"), FILE_RANGES * RANGE, file as u8)));
        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&vec(step(), 1..40), |steps| {
            run(&share, &steps);
            Ok(())
        });
        outcome.unwrap();
    }
}
