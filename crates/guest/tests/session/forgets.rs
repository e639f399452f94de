//! Forgets: not too many, not too few, not too early.

use proptest::prelude::*;
use transom_guest::session::Session;
use transom_wire::{
    NodeId, Opcode,
    header::InHeader,
    ops::{
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        init::InitFlags,
    },
};
use zerocopy::FromBytes;

use crate::{
    peer::{Plain, ROOT, in_memory, name},
    script::{Script, reply, session_with},
};

fn quiet() -> (std::sync::Arc<Script>, Session<Plain>) {
    session_with(InitFlags::empty(), |header, _| reply(header, 0, &[]))
}

/// Returns the references that the server was told to forget, in order.
fn told(script: &Script) -> Vec<Vec<(u64, u64)>> {
    script.told.lock().unwrap().iter().map(|message| forgets_in(message)).collect()
}

fn forgets_in(message: &[u8]) -> Vec<(u64, u64)> {
    let (header, body) = InHeader::read_from_prefix(message).unwrap();
    assert_eq!(header.len.get() as usize, message.len());
    if header.opcode == Opcode::Forget as u32 {
        return vec![(header.nodeid.get(), ForgetIn::read_from_bytes(body).unwrap().nlookup.get())];
    }
    assert_eq!(header.opcode, Opcode::BatchForget as u32);
    let (arg, body) = BatchForgetIn::read_from_prefix(body).unwrap();
    let ones = <[ForgetOne]>::ref_from_bytes_with_elems(body, arg.count.get() as usize).unwrap();
    ones.iter().map(|one| (one.nodeid.get(), one.nlookup.get())).collect()
}

#[test]
fn forgets_wait_for_others_and_are_added_up() {
    let (script, session) = quiet();
    for (node, nlookup) in [(2, 1), (3, 4), (2, 5), (4, 0), (0, 1), (1, 9)] {
        session.forget(NodeId(node), nlookup);
    }
    assert_eq!(session.queued_forgets(), 2, "those of nothing and of the root count nothing");
    assert!(told(&script).is_empty());
    session.flush_forgets().unwrap();
    assert_eq!(told(&script), [[(2, 6), (3, 4)]]);
    session.forget(NodeId(9), 3);
    session.flush_forgets().unwrap();
    assert_eq!(told(&script)[1], [(9, 3)]);
    let counters = session.counters();
    assert_eq!((counters.forgotten_lookups, counters.forget_messages), (13, 2));
}

#[test]
fn a_full_queue_is_sent_at_once() {
    let (script, session) = quiet();
    for node in 2..202 {
        session.forget(NodeId(node), 1);
    }
    assert_eq!(told(&script).iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64]);
    assert_eq!(session.queued_forgets(), 8);
    session.destroy().unwrap();
    let mut all: Vec<_> = told(&script).concat();
    all.sort_unstable();
    assert_eq!(all, (2..202).map(|node| (node, 1)).collect::<Vec<_>>());
}

#[test]
fn forgets_that_could_not_be_sent_are_sent_later() {
    let (peer, session) = in_memory();
    for number in 0..100 {
        let entry = session.mkdir(&ROOT, NodeId::ROOT, name(&format!("dir {number}")), 0o755).unwrap();
        peer.fail(0);
        session.forget(entry.nodeid.into(), 1);
        peer.fail(u64::MAX);
    }
    assert!(session.counters().forget_failures > 0);
    assert_eq!(peer.fs().held().lookups, session.queued_forgets() as u64);
    assert_eq!(peer.fs().held().lookups, 100, "each was refused");
    session.flush_forgets().unwrap();
    assert_eq!(peer.fs().held().lookups, 0);
}

#[test]
fn threads_that_forget_at_once_lose_nothing() {
    let (script, session) = quiet();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let session = &session;
            scope.spawn(move || (0..500).for_each(|at| session.forget(NodeId(2 + (at * 7 + thread) % 300), 1)));
        }
    });
    session.flush_forgets().unwrap();
    assert_eq!(told(&script).concat().iter().map(|&(_, nlookup)| nlookup).sum::<u64>(), 2000);
}

/// What happens to the references of a few names.
#[derive(Debug, Clone, Copy)]
enum Step {
    Lookup(u8),
    /// Gives back one reference of a name that has one.
    Forget(u8),
    /// From now on, messages fail or succeed.
    Fail(bool),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..NAMES).prop_map(Step::Lookup),
        6 => (0..NAMES).prop_map(Step::Forget),
        1 => any::<bool>().prop_map(Step::Fail),
        1 => Just(Step::Flush),
    ]
}

/// More than one message holds.
const NAMES: u8 = 200;

proptest! {
    /// The model is a number for each name: references that replies counted and that were not given back.
    #[test]
    fn the_server_counts_what_the_guest_counts(steps in prop::collection::vec(step(), 1..600)) {
        let (peer, session) = in_memory();
        let mut nodes = Vec::new();
        for number in 0..NAMES {
            let entry = session.mkdir(&ROOT, NodeId::ROOT, name(&number.to_string()), 0o755).unwrap();
            nodes.push((NodeId::from(entry.nodeid), 1u64));
        }
        let mut is_failing = false;
        for step in steps {
            peer.fail_all(is_failing);
            match step {
                Step::Lookup(number) => {
                    if let Ok(entry) = session.lookup(&ROOT, NodeId::ROOT, name(&number.to_string())) {
                        prop_assert_eq!(NodeId::from(entry.nodeid), nodes[number as usize].0);
                        nodes[number as usize].1 += 1;
                    }
                }
                Step::Forget(number) if nodes[number as usize].1 > 0 => {
                    nodes[number as usize].1 -= 1;
                    session.forget(nodes[number as usize].0, 1);
                }
                Step::Forget(_) => {}
                Step::Fail(wanted) => is_failing = wanted,
                Step::Flush => {
                    let has_failed = session.flush_forgets().is_err();
                    prop_assert_eq!(has_failed, is_failing && session.queued_forgets() > 0);
                }
            }
            let known: u64 = nodes.iter().map(|(_, count)| count).sum();
            prop_assert!(peer.fs().held().lookups >= known, "given back too early");
        }
        peer.fail_all(false);
        session.flush_forgets().unwrap();
        prop_assert_eq!(peer.fs().held().lookups, nodes.iter().map(|(_, count)| count).sum::<u64>());
    }
}
