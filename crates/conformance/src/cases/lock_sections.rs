//! What a lock leaves of another lock of the same process that it overlaps or touches: a second process asks for every
//! section of the file that is locked, its kind and its holder.

use super::prelude::*;
use crate::client::{LockKind, LockOwner};

pub(super) const CASES: &[Definition] = &[
    case("locks/sections-of-a-read-lock-over-a-write-lock", read_over_write),
    case("locks/sections-of-a-write-lock-over-a-read-lock", write_over_read),
    case("locks/sections-of-an-unlock-over-a-write-lock", unlock_over_write),
    case("locks/sections-of-an-unlock-over-a-read-lock", unlock_over_read),
    case("locks/sections-of-one-kind-that-touch-are-one", one_kind),
];

use LockKind::{None as Unlock, Read, Write};
use LockOwner::Process;

/// Bytes of the file: the first one and how many; a length of 0 reaches to the end of the file.
type Bytes = (u64, u64);

/// The lock that every step begins with.
const FIRST: Bytes = (10, 5);

/// A second lock or unlock, and what it leaves of [`FIRST`] before and after it.
const OVERLAPS: &[(&str, Bytes, Option<Bytes>, Option<Bytes>)] = &[
    ("far before", (1, 5), None, Some((10, 5))),
    ("up to the byte before", (5, 5), None, Some((10, 5))),
    ("up to the first byte", (5, 6), None, Some((11, 4))),
    ("over the beginning", (5, 8), None, Some((13, 2))),
    ("all of it", (10, 5), None, None),
    ("more than all of it", (9, 7), None, None),
    ("in the middle", (12, 2), Some((10, 2)), Some((14, 1))),
    ("over the end", (13, 5), Some((10, 3)), None),
    ("from the last byte", (14, 5), Some((10, 4)), None),
    ("from the byte after", (15, 5), Some((10, 5)), None),
    ("far after", (16, 5), Some((10, 5)), None),
    ("from the middle to the end of the file", (12, 0), Some((10, 2)), None),
];

/// A second lock of the same kind, and the sections that there are then.
const JOINS: &[(&str, Bytes, &[Bytes])] = &[
    ("far before", (1, 5), &[(1, 5), (10, 5)]),
    ("up to the byte before", (5, 5), &[(5, 10)]),
    ("up to the first byte", (5, 6), &[(5, 10)]),
    ("in the middle", (12, 2), &[(10, 5)]),
    ("over the end", (13, 5), &[(10, 8)]),
    ("from the byte after", (15, 5), &[(10, 10)]),
    ("far after", (16, 5), &[(10, 5), (16, 5)]),
    ("from the byte after to the end of the file", (15, 0), &[(10, 0)]),
];

fn read_over_write(t: &Case<'_>) -> Outcome {
    overlaps(t, Write, Read)
}

fn write_over_read(t: &Case<'_>) -> Outcome {
    overlaps(t, Read, Write)
}

fn unlock_over_write(t: &Case<'_>) -> Outcome {
    overlaps(t, Write, Unlock)
}

fn unlock_over_read(t: &Case<'_>) -> Outcome {
    overlaps(t, Read, Unlock)
}

fn one_kind(t: &Case<'_>) -> Outcome {
    t.put("f", "0123456789")?;
    for kind in [Read, Write] {
        for &(place, second, left) in JOINS {
            sections(t, place, kind, (kind, second), left.iter().map(|&bytes| (kind, bytes)).collect())?;
        }
    }
    Ok(())
}

fn overlaps(t: &Case<'_>, first: LockKind, second: LockKind) -> Outcome {
    t.put("f", "0123456789")?;
    for &(place, bytes, before, after) in OVERLAPS {
        let new = (second != Unlock).then_some((second, bytes));
        let old = |bytes: Option<Bytes>| bytes.map(|bytes| (first, bytes));
        // `new` lies before what is left after it, and after what is left before it.
        sections(t, place, first, (second, bytes), [old(before), new, old(after)].into_iter().flatten().collect())?;
    }
    Ok(())
}

/// Takes [`FIRST`], does `second`, and compares what another process is told with `expected`.
fn sections(
    t: &Case<'_>,
    place: &str,
    first: LockKind,
    second: (LockKind, Bytes),
    expected: Vec<(LockKind, Bytes)>,
) -> Outcome {
    t.step(place);
    let file = t.open("f", OFlags::RDWR)?;
    file.lock(Process, first, FIRST.0, FIRST.1)?;
    let (kind, (start, len)) = second;
    file.lock(Process, kind, start, len)?;
    let told = t.other_process(|t| {
        let file = t.open("f", OFlags::RDWR)?;
        let (mut told, mut start) = (Vec::new(), 0);
        loop {
            let (lock, pid) = file.query_lock(Process, Write, start, 0)?;
            if lock.kind == Unlock {
                return Ok(told);
            }
            told.push((lock.kind, (lock.start, lock.len), pid));
            if lock.len == 0 {
                return Ok(told);
            }
            start = lock.start + lock.len;
        }
    })?;
    if t.kernel().is_ok() {
        let others = told.iter().find(|(_, _, pid)| *pid != std::process::id() as i32);
        equal("a section of another process", others, None)?;
    }
    let found: Vec<_> = told.into_iter().map(|(kind, bytes, _)| (kind, bytes)).collect();
    equal("sections", found, expected)
}
