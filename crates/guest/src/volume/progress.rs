//! Whether a directory stream gets anywhere: a server that leads it round in a circle would make it endless.
//!
//! Cookies say nothing by their order, so what is looked for is one that comes again. A mark is compared with every
//! place that follows, and moved ahead at distances that double: it takes two numbers, and a circle is noticed within
//! three rounds or so, whatever leads into it (Brent's algorithm).

/// Where a stream has been, by the cookies from which it asked.
#[derive(Debug)]
pub(super) struct Progress {
    mark: u64,
    /// Places since the mark, and after how many it moves.
    since: u64,
    moves_after: u64,
}

impl Progress {
    /// A stream that begins at `cookie`.
    pub(super) fn from(cookie: u64) -> Self {
        Self { mark: cookie, since: 0, moves_after: 1 }
    }

    /// Goes on to `cookie`; false where the stream has been there since it began.
    pub(super) fn advance(&mut self, cookie: u64) -> bool {
        if cookie == self.mark {
            return false;
        }
        self.since += 1;
        if self.since == self.moves_after {
            *self = Self { mark: cookie, since: 0, moves_after: self.moves_after.saturating_mul(2) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_noticed_within_three_rounds_and_what_leads_into_it() {
        for lead in 0..40u64 {
            for round in 1..40u64 {
                let place = |step: u64| if step < lead { 1000 + step } else { (step - lead) % round };
                let mut progress = Progress::from(place(0));
                let noticed = (1..).find(|&step| !progress.advance(place(step)));
                assert!(
                    noticed.is_some_and(|step| step <= 3 * (lead.max(round) + round)),
                    "{lead} {round} {noticed:?}"
                );
            }
        }
    }

    #[test]
    fn places_that_never_come_again_are_no_circle() {
        let mut progress = Progress::from(0);
        assert!((1..100_000u64).all(|step| progress.advance(step.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    }
}
