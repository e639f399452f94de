//! Random locks and unlocks of three owners, compared with a plain table of each byte's owners and kinds.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::{
    TO_THE_END,
    ranges::{Held, Owner, RangeLocks},
};

/// Number of bytes in the model; the last one stands for all later bytes too.
const BYTES: u64 = 16;
const OWNERS: [Owner; 3] = [Owner::Process(1), Owner::Process(2), Owner::OpenFile(1)];

/// By byte and owner: whether the lock is exclusive.
type Model = [[Option<bool>; OWNERS.len()]; BYTES as usize];

#[derive(Debug, Clone, Copy)]
struct Act {
    owner: usize,
    /// Exclusive, shared, or a release.
    kind: Option<bool>,
    start: u64,
    last: u64,
}

fn act() -> impl Strategy<Value = Act> {
    (0..OWNERS.len(), any::<Option<bool>>(), 0..BYTES, 0..BYTES).prop_map(|(owner, kind, one, other)| {
        let last = if one.max(other) == BYTES - 1 { TO_THE_END } else { one.max(other) };
        Act { owner, kind, start: one.min(other), last }
    })
}

impl Act {
    fn held(&self) -> Held {
        let (owner, is_exclusive) = (OWNERS[self.owner], self.kind == Some(true));
        Held { owner, is_exclusive, start: self.start, last: self.last, pid: self.owner as u32 }
    }

    fn bytes(&self) -> core::ops::Range<usize> {
        self.start as usize..self.last.min(BYTES - 1) as usize + 1
    }

    /// Returns the first byte with a conflicting lock of another owner.
    fn conflict_in(&self, model: &Model) -> Option<usize> {
        let is_in_the_way = |(owner, held): (usize, &Option<bool>)| {
            owner != self.owner && held.is_some_and(|is_exclusive| is_exclusive || self.kind == Some(true))
        };
        self.bytes().find(|&byte| model[byte].iter().enumerate().any(is_in_the_way))
    }
}

proptest! {
    #[test]
    fn every_byte_is_held_by_whom_the_model_says(acts in prop::collection::vec(act(), 1..60)) {
        let (mut locks, mut model) = (RangeLocks::default(), Model::default());
        for act in acts {
            let held = act.held();
            if act.kind.is_none() {
                locks.clear(held.owner, held.start, held.last);
            } else if let Some(byte) = act.conflict_in(&model) {
                let found = locks.conflict(&held).unwrap();
                let covered = found.start.max(act.start) as usize;
                prop_assert_eq!(covered, byte, "the first in the way");
                prop_assert_eq!(model[byte][found.pid as usize], Some(found.is_exclusive));
                continue;
            } else {
                prop_assert_eq!(locks.conflict(&held), None);
                locks.set(held);
            }
            act.bytes().for_each(|byte| model[byte][act.owner] = act.kind);
            for (byte, holders) in model.iter().enumerate() {
                let told: Vec<_> = OWNERS.iter().map(|&owner| locks.kind_at(owner, byte as u64)).collect();
                prop_assert_eq!(&told[..], &holders[..], "byte {}", byte);
            }
            prop_assert_eq!(locks.is_empty(), model == Model::default());
        }
    }

    #[test]
    fn what_touches_is_one_lock(acts in prop::collection::vec(act(), 1..60)) {
        let mut locks = RangeLocks::default();
        for act in acts.iter().filter(|act| act.owner == 0) {
            match act.kind {
                Some(_) => locks.set(act.held()),
                None => locks.clear(OWNERS[0], act.start, act.last),
            }
            // A request for all of it conflicts with whole runs: from the first byte of the owner's kind to the last.
            let mut at = 0;
            let wanted = |start| Held { owner: OWNERS[1], is_exclusive: true, start, last: TO_THE_END, pid: 0 };
            while let Some(found) = locks.conflict(&wanted(at)) {
                let kind = Some(found.is_exclusive);
                prop_assert!(found.start == 0 || locks.kind_at(OWNERS[0], found.start - 1) != kind);
                prop_assert!(found.last == TO_THE_END || locks.kind_at(OWNERS[0], found.last + 1) != kind);
                at = found.last + 1;
            }
        }
    }
}
