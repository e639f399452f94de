//! The ways of inodes against a model of the kernel's own bookkeeping.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// What the kernel holds: it fails an open that does not fit what is open.
#[derive(Default)]
struct Kernel {
    registered: BTreeSet<i32>,
    next_id: i32,
    /// By inode, each open file: passed through, and to which number.
    open: BTreeMap<u64, Vec<Option<i32>>>,
}

impl Kernel {
    fn register(&mut self) -> i32 {
        self.next_id += 1;
        self.registered.insert(self.next_id);
        self.next_id
    }

    fn close(&mut self, id: Option<i32>) {
        if let Some(id) = id {
            assert!(self.registered.remove(&id), "{id} is registered once and closed once");
        }
    }

    /// Returns whether the open goes well; where it does not, RELEASE follows.
    fn open(&mut self, nodeid: u64, answer: OpenAnswer) -> bool {
        let files = self.open.entry(nodeid).or_default();
        let way = match answer {
            OpenAnswer::Passed(id) => {
                assert!(self.registered.contains(&id), "{id} is registered");
                Some(id)
            }
            OpenAnswer::Ordinary { .. } => None,
        };
        let fits = files.iter().all(|open| *open == way);
        if fits {
            files.push(way);
        }
        fits
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open {
        nodeid: u64,
        writes: bool,
    },
    /// The daemon answers the oldest question: with nothing, a file for reading, or one for writing.
    Answer(u8),
    Release {
        nodeid: u64,
    },
    Forget {
        nodeid: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (2..5_u64, any::<bool>()).prop_map(|(nodeid, writes)| Step::Open { nodeid, writes }),
        4 => (0..4_u8).prop_map(Step::Answer),
        3 => (2..5_u64).prop_map(|nodeid| Step::Release { nodeid }),
        1 => (2..5_u64).prop_map(|nodeid| Step::Forget { nodeid }),
    ]
}

/// The machine, the kernel, and what lies between.
#[derive(Default)]
struct World {
    inodes: Inodes<u64>,
    kernel: Kernel,
    requests: std::collections::VecDeque<BackingFileRequest>,
    /// Inodes of which the daemon has said no about writing while they were open for reading.
    may_fail: BTreeSet<u64>,
    waiting: BTreeMap<u64, usize>,
}

impl World {
    fn open(&mut self, nodeid: u64, writes: bool) {
        let access = if writes { Access::Write } else { Access::Read };
        match self.inodes.open(NodeId(nodeid), access, nodeid) {
            Next::Answer(_, answer) => self.deliver(nodeid, answer),
            Next::Request(ask) => {
                self.requests.push_back(ask);
                *self.waiting.entry(nodeid).or_default() += 1;
            }
            Next::Wait => *self.waiting.entry(nodeid).or_default() += 1,
        }
    }

    fn deliver(&mut self, nodeid: u64, answer: OpenAnswer) {
        if !self.kernel.open(nodeid, answer) {
            assert!(self.may_fail.contains(&nodeid), "an open of {nodeid} fails: {answer:?}");
            let close = self.inodes.release(NodeId(nodeid));
            self.kernel.close(close);
        }
    }

    fn answer(&mut self, kind: u8) {
        let Some(ask) = self.requests.pop_front() else { return };
        let nodeid = ask.nodeid.0;
        let found = match (kind, self.inodes.backing(ask.nodeid)) {
            (0, known) => {
                if known.is_some() {
                    self.may_fail.insert(nodeid);
                }
                BackingVerdict::Nothing
            }
            (_, Some(_)) => BackingVerdict::Writable,
            (kind, None) => BackingVerdict::Registered(Backing {
                id: self.kernel.register(),
                identity: (1, nodeid),
                is_writable: kind == 2 || ask.access == Access::Write,
                may_idle: kind != 3,
            }),
        };
        let outcome = self.inodes.request_done(ask, found);
        *self.waiting.entry(nodeid).or_default() -= outcome.answers.len();
        for (_, answer) in outcome.answers {
            self.deliver(nodeid, answer);
        }
        self.requests.extend(outcome.request);
        self.kernel.close(outcome.unused);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Open { nodeid, writes } => self.open(nodeid, writes),
            Step::Answer(kind) => self.answer(kind),
            Step::Release { nodeid } => {
                if self.kernel.open.get_mut(&nodeid).and_then(Vec::pop).is_some() {
                    let close = self.inodes.release(NodeId(nodeid));
                    self.kernel.close(close);
                }
            }
            Step::Forget { nodeid } => {
                let is_open = self.kernel.open.get(&nodeid).is_some_and(|files| !files.is_empty());
                if !is_open {
                    let close = self.inodes.forget(NodeId(nodeid));
                    self.kernel.close(close);
                }
            }
        }
    }
}

proptest! {
    /// The kernel refuses none of our answers, but where the daemon lets a file be read by its descriptor and not
    /// written.
    #[test]
    fn the_kernel_takes_every_answer_and_nothing_stays_registered(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::default();
        for step in steps {
            world.run(step);
        }
        while !world.requests.is_empty() {
            world.answer(1);
        }
        prop_assert!(world.waiting.values().all(|&count| count == 0));
        for nodeid in 2..5 {
            while world.kernel.open.get(&nodeid).is_some_and(|files| !files.is_empty()) {
                world.run(Step::Release { nodeid });
            }
            world.run(Step::Forget { nodeid });
        }
        prop_assert!(world.kernel.registered.is_empty());
        prop_assert!(world.inodes.inodes.is_empty() && world.inodes.idle.is_empty());
    }
}

#[test]
fn a_file_that_nobody_has_open_serves_the_next_open_without_a_question() {
    let mut world = World::default();
    world.open(2, false);
    world.answer(1);
    world.run(Step::Release { nodeid: 2 });
    world.open(2, false);
    assert_eq!(world.kernel.open[&2], [Some(1)]);
}

#[test]
fn of_files_that_nobody_has_open_the_oldest_go_first() {
    let mut world = World::default();
    for nodeid in 2..2 + IDLE_MAX as u64 + 2 {
        world.open(nodeid, false);
        world.answer(1);
        world.run(Step::Release { nodeid });
    }
    assert_eq!(world.kernel.registered.len(), IDLE_MAX);
    assert_eq!(world.kernel.registered.first(), Some(&3));
}

#[test]
fn a_kernels_cache_from_before_is_not_kept_by_an_ordinary_open() {
    let mut world = World::default();
    world.open(2, false);
    world.answer(3);
    world.run(Step::Release { nodeid: 2 });
    assert_eq!(world.inodes.open_ordinary(NodeId(2)), OpenAnswer::Ordinary { may_cache: false });
    world.inodes.release(NodeId(2));
    world.inodes.forget(NodeId(2));
    assert_eq!(world.inodes.open_ordinary(NodeId(2)), OpenAnswer::Ordinary { may_cache: true });
}
