//! Random locks and unlocks, against a plain table of the kind of lock on each byte.

use proptest::prelude::*;

use super::*;

/// Number of bytes in the model; the last one stands for all that follow it.
const BYTES: u64 = 16;

type Model = [Option<LockKind>; BYTES as usize];

fn kind() -> impl Strategy<Value = LockKind> {
    prop_oneof![Just(LockKind::Shared), Just(LockKind::Exclusive)]
}

fn bytes() -> impl Strategy<Value = FileRange> {
    (0..BYTES, 0..BYTES).prop_map(|(one, other)| {
        let last = if one.max(other) == BYTES - 1 { i64::MAX as u64 } else { one.max(other) };
        range(one.min(other), last)
    })
}

fn of_model(bytes: FileRange) -> std::ops::RangeInclusive<usize> {
    bytes.start() as usize..=bytes.end().min(BYTES - 1) as usize
}

/// Returns runs of bytes with one kind of lock.
fn runs(model: &Model) -> Vec<(u64, LockKind)> {
    let is_first = |at: &usize| *at == 0 || model[*at - 1] != model[*at];
    (0..model.len()).filter(is_first).filter_map(|at| Some((at as u64, model[at]?))).collect()
}

proptest! {
    #[test]
    fn every_byte_is_locked_as_the_model_says(
        acts in prop::collection::vec((bytes(), prop::option::of(kind())), 1..60),
        asked in (bytes(), kind()),
    ) {
        let (mut ranges, mut model) = (Ranges::default(), Model::default());
        for (bytes, kind) in acts {
            let (len, splits) = (ranges.len(), ranges.splits(bytes));
            match kind {
                Some(kind) => ranges.set(bytes, kind),
                None => ranges.clear(bytes),
            }
            model[of_model(bytes)].fill(kind);
            prop_assert!(ranges.len() <= len + 2);
            prop_assert!(kind.is_some() || (ranges.len() > len) == splits);
            let found: Vec<_> = ranges.iter().map(|(bytes, kind)| (bytes.start(), kind)).collect();
            prop_assert_eq!(found, runs(&model), "one lock for each run");
            for (at, kind) in model.iter().enumerate() {
                prop_assert_eq!(ranges.at(at as u64).map(|(_, kind)| kind), *kind, "byte {}", at);
            }
            let is_in_the_way = |held: LockKind| held == LockKind::Exclusive || asked.1 == LockKind::Exclusive;
            let expected = model[of_model(asked.0)].iter().flatten().any(|&held| is_in_the_way(held));
            prop_assert_eq!(ranges.keep_out(asked.0, asked.1), expected);
        }
    }
}
