//! Lists and cursors, compared with one plain buffer.

use alloc::{vec, vec::Vec};

use proptest::prelude::*;

#[path = "../../tests/volume/cut.rs"]
mod cut;

use super::*;
use cut::{cut, cut_mut};

/// A sink of which the bytes before `present` are present. `fault_in` makes those up to the end of its page of 64 bytes
/// present.
struct Faulty {
    bytes: Vec<u8>,
    present: usize,
    /// From here on nothing is ever present.
    end: usize,
}

impl ByteSink for Faulty {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn fault_in(&mut self, at: usize, len_bytes: usize) -> usize {
        self.present = (at / 64 + 1) * 64;
        self.present.min(self.end).saturating_sub(at).min(len_bytes)
    }

    fn put(&mut self, at: usize, from: IoSlice<'_>) -> usize {
        let end = self.present.min(self.end).min(self.bytes.len()).max(at);
        from.copy_to(IoSliceMut::new(&mut self.bytes[at..end]))
    }
}

proptest! {
    #[test]
    fn a_list_is_copied_as_one_buffer_is(
        len in 0..3000_usize,
        lens in prop::collection::vec(0..700_usize, 0..12),
        others in prop::collection::vec(0..700_usize, 0..12),
        accesses in prop::collection::vec((0..3000_usize, 0..1500_usize), 0..20),
    ) {
        let from: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
        let slices: Vec<_> = cut(&from, &lens).collect();
        let mut list = IoSlices::new(&slices);
        prop_assert_eq!(list.len_bytes(), len);
        // In any order, since a copy that failed is repeated.
        for (at, count) in accesses {
            let at = at.min(len);
            let mut found = vec![0xaa; count];
            let copied = list.take(at, IoSliceMut::new(&mut found));
            prop_assert_eq!(copied, count.min(len - at));
            prop_assert_eq!(&found[..copied], &from[at..at + copied]);
            prop_assert!(found[copied..].iter().all(|&byte| byte == 0xaa));
        }
        let mut to = vec![0; len];
        let rooms: Vec<_> = cut_mut(&mut to, &others).collect();
        let mut room = IoSlicesMut::new(&rooms);
        let mut at = 0;
        for piece in Pieces::new(&slices, 0, len).iter() {
            prop_assert!(!piece.is_empty());
            at += room.put(at, piece);
        }
        prop_assert_eq!((at, &to), (len, &from));
    }

    #[test]
    fn a_part_of_a_list_has_the_bytes_of_that_part(
        lens in prop::collection::vec(0..200_usize, 0..12),
        skip in 0..600_usize,
        count in 0..600_usize,
    ) {
        let from: Vec<u8> = (0..1000).map(|at| (at * 7 % 251) as u8).collect();
        let slices: Vec<_> = cut(&from, &lens).collect();
        let part = Pieces::new(&slices, skip, count.min(1000 - skip));
        let mut found = vec![0; part.len_bytes()];
        part.read(&mut found);
        prop_assert_eq!(found, &from[skip..skip + part.len_bytes()]);
        prop_assert_eq!(part.places().map(|(_, len)| len).sum::<usize>(), part.len_bytes());
    }

    #[test]
    fn a_copy_to_memory_that_may_fault_ends_where_nothing_can_be_made_present(
        len in 1..500_usize,
        present in 0..500_usize,
        end in 0..600_usize,
    ) {
        let from: Vec<u8> = (0..len).map(|at| (at + 1) as u8).collect();
        let mut sink = Faulty { bytes: vec![0; len], present, end };
        let copied = Target::new(&mut sink).put_all(IoSlice::new(&from));
        prop_assert_eq!(copied, len.min(end));
        prop_assert_eq!(&sink.bytes[..copied], &from[..copied]);
        prop_assert!(sink.bytes[copied..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn memory_that_is_said_to_be_present_and_never_is_ends_the_copy() {
    struct Liar;
    impl ByteSink for Liar {
        fn len_bytes(&self) -> usize {
            10
        }
        fn fault_in(&mut self, _: usize, _: usize) -> usize {
            usize::MAX
        }
        fn put(&mut self, _: usize, _: IoSlice<'_>) -> usize {
            0
        }
    }
    assert_eq!(Target::new(&mut Liar).put_all(IoSlice::new(&[1; 10])), 0);
}

#[test]
fn parts_beyond_the_end_are_empty() {
    let bytes = [1, 2, 3];
    let slice = IoSlice::new(&bytes);
    assert_eq!((slice.part(1..9).len(), slice.part(5..9).len()), (2, 0));
}
