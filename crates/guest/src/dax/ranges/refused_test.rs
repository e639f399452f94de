//! How long, for what and for which parts a refusal holds.

use super::refused::Refused;
use crate::{
    Errno,
    dax::Access::{self, Read, Write},
};

const SECOND_NS: u64 = 1_000_000_000;
const BEGIN_NS: u64 = 5;

fn refused(index: u64, access: Access, error: Errno) -> Refused {
    let mut refused = Refused::default();
    refused.add(index, access, error, BEGIN_NS);
    refused
}

fn at(refused: &Refused, index: u64, access: Access, now_ns: u64) -> Option<(Errno, bool)> {
    refused.get(index, access, || now_ns)
}

#[test]
fn what_was_not_refused_may_be_asked_for() {
    assert_eq!(at(&Refused::default(), 0, Write, 0), None);
}

#[test]
fn most_errors_hold_for_a_second_and_that_of_a_stopped_device_for_ten_milliseconds() {
    for (error, for_ns) in [(Errno::IO, SECOND_NS), (Errno::NOMEM, SECOND_NS), (Errno::AGAIN, SECOND_NS / 100)] {
        let refused = refused(3, Read, error);
        for index in [0, 3, 4] {
            assert_eq!(at(&refused, index, Read, BEGIN_NS + for_ns - 1), Some((error, false)));
            assert_eq!(at(&refused, index, Read, BEGIN_NS + for_ns), None);
        }
    }
}

#[test]
fn what_the_server_never_does_is_never_asked_for_again() {
    let errors = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::TXTBSY, Errno::NOSYS, Errno::NODEV, Errno::INVAL];
    for error in errors {
        assert_eq!(at(&refused(3, Read, error), 0, Read, u64::MAX), Some((error, true)), "{error:?}");
    }
    // Not even the beginning of the file can be mapped.
    assert_eq!(at(&refused(0, Read, Errno::OPNOTSUPP), 9, Read, u64::MAX), Some((Errno::OPNOTSUPP, true)));
}

#[test]
fn the_end_of_a_file_that_cannot_be_mapped_is_one_range_for_a_second() {
    let refused = refused(3, Read, Errno::OPNOTSUPP);
    assert_eq!(at(&refused, 3, Read, BEGIN_NS), Some((Errno::OPNOTSUPP, false)));
    assert_eq!(at(&refused, 3, Read, BEGIN_NS + SECOND_NS), None);
    assert_eq!([0, 2, 4].map(|index| at(&refused, index, Read, BEGIN_NS)), [None; 3]);
}

#[test]
fn who_may_not_write_may_still_read() {
    let for_writing = refused(0, Write, Errno::ROFS);
    assert_eq!(at(&for_writing, 0, Read, 0), None);
    assert_eq!(at(&for_writing, 0, Write, 0), Some((Errno::ROFS, true)));
    let for_all = refused(0, Read, Errno::NOSYS);
    assert_eq!(at(&for_all, 0, Write, 0), Some((Errno::NOSYS, true)));
}

#[test]
fn a_refusal_of_everything_for_good_stays_and_any_other_makes_room() {
    let mut known = refused(0, Read, Errno::NOSYS);
    known.add(1, Write, Errno::IO, BEGIN_NS);
    assert_eq!(at(&known, 0, Read, u64::MAX), Some((Errno::NOSYS, true)));

    let mut known = refused(0, Write, Errno::ROFS);
    known.add(1, Read, Errno::IO, BEGIN_NS);
    assert_eq!(at(&known, 0, Read, BEGIN_NS), Some((Errno::IO, false)));

    let mut known = refused(0, Read, Errno::IO);
    known.add(1, Read, Errno::NODEV, BEGIN_NS);
    assert_eq!(at(&known, 0, Read, u64::MAX), Some((Errno::NODEV, true)));
}
