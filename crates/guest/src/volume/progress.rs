//! Detects a directory stream that makes no progress because the server leads it in a circle.
//!
//! The order of cookies means nothing, so the stream looks for a cookie that repeats. A mark is compared with each
//! cookie that follows, and moved ahead at doubling distances: this needs two numbers, and a circle is noticed within
//! about three rounds, whatever leads into it (Brent's algorithm).

/// The positions of a stream, by the cookies of its requests.
#[derive(Debug)]
pub(super) struct Progress {
    mark: u64,
    /// Positions since the mark, and the number after which it moves.
    since: u64,
    moves_after: u64,
}

impl Progress {
    /// Starts at `cookie`.
    pub(super) fn from(cookie: u64) -> Self {
        Self { mark: cookie, since: 0, moves_after: 1 }
    }

    /// Advances to `cookie`; returns false if the stream has been there before.
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
