//! Free ranges of addresses, from which the areas of mappings are taken.

use std::{collections::BTreeMap, ops::Range};

/// The free ranges of a larger one. Neighbours are always merged.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Lengths, by start.
    free: BTreeMap<usize, usize>,
}

impl FreeList {
    /// Returns a list on which all of `range` is free.
    pub(super) fn new(range: Range<usize>) -> Self {
        Self { free: BTreeMap::from([(range.start, range.len())]) }
    }

    /// Takes the first `len` bytes of the first free range that is long enough.
    pub(super) fn take(&mut self, len: usize) -> Option<Range<usize>> {
        let (start, found) = self.free.iter().map(|(&start, &len)| (start, len)).find(|&(_, found)| found >= len)?;
        self.free.remove(&start);
        if found > len {
            self.free.insert(start + len, found - len);
        }
        Some(start..start + len)
    }

    /// Returns a range that [`Self::take`] returned.
    pub(super) fn put(&mut self, range: Range<usize>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_in_any_order_can_be_taken_as_one() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut list = FreeList::new(100..130);
            let taken = [(); 3].map(|()| list.take(10).unwrap());
            assert_eq!(taken, [100..110, 110..120, 120..130]);
            assert_eq!(list.take(1), None);
            order.into_iter().for_each(|index| list.put(taken[index].clone()));
            assert_eq!(list.take(30), Some(100..130), "{order:?}");
        }
    }

    #[test]
    fn the_rest_of_a_range_stays_free() {
        let mut list = FreeList::new(0..30);
        let first = list.take(10).unwrap();
        assert_eq!(list.take(25), None);
        assert_eq!(list.take(20), Some(10..30));
        list.put(first);
        assert_eq!(list.take(5), Some(0..5));
    }
}
