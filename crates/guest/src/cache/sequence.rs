//! Detects whether a file is read sequentially, and how far to read ahead.

use core::ops::Range;

/// Initial read-ahead in bytes; it doubles with each step.
const FIRST: u64 = 128 << 10;

/// The read pattern of an open file.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    /// Where the last read ended.
    end: u64,
    /// The end of the READs that were started ahead.
    ahead: u64,
    /// How far to read beyond the reader, in bytes.
    window: u64,
}

impl Sequence {
    /// Records a read and returns the range to read ahead now, at most `max` bytes beyond the reader.
    pub(crate) fn next(&mut self, offset: u64, end: u64, max: u64) -> Option<Range<u64>> {
        let is_sequential = offset == self.end && end > offset;
        self.end = end;
        if !is_sequential {
            (self.ahead, self.window) = (end, 0);
            return None;
        }
        if self.window > 0 && self.ahead > end.saturating_add(self.window / 2) {
            return None;
        }
        self.window = (2 * self.window).clamp(FIRST, FIRST.max(max)).min(max);
        let from = self.ahead.max(end);
        let to = end.saturating_add(self.window);
        self.ahead = to.max(from);
        (from < to).then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_is_read_ahead_for_and_a_jumping_one_is_not() {
        let mut sequence = Sequence::default();
        let (page, max) = (4096, 1 << 20);
        assert_eq!(sequence.next(0, page, max), Some(page..page + FIRST));
        assert_eq!(sequence.next(page, 2 * page, max), None);
        let mut last = 0;
        for at in 2..2000 {
            if let Some(ahead) = sequence.next(at * page, (at + 1) * page, max) {
                assert!(ahead.end <= (at + 1) * page + max);
                last = ahead.end - (at + 1) * page;
            }
        }
        assert_eq!(last, max, "the window has grown to its limit");
        assert_eq!(sequence.next(0, page, max), None);
        assert_eq!(sequence.next(page, 2 * page, 0), None);
    }
}
