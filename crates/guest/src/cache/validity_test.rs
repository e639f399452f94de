use transom_versions::{Moment, Stamp};

use super::*;

/// A clock, and the moment of the last change.
struct At(u64, Moment);

impl Judge for At {
    fn now_ns(&self) -> u64 {
        self.0
    }

    fn is_unchanged(&self, fetched: Moment) -> bool {
        self.1.epoch == fetched.epoch && self.1.clock <= fetched.clock
    }
}

fn at(now_ns: u64) -> At {
    At(now_ns, Moment::default())
}

fn moment(epoch: u64, clock: u64) -> Moment {
    Moment { epoch, clock: Stamp::new(clock) }
}

#[test]
fn a_reply_holds_as_long_as_the_mode_lets_it() {
    let of = |mode, seconds, nanoseconds| Validity::of_reply(mode, None, || 10, seconds, nanoseconds);
    assert!(!of(CacheMode::None, 1, 0).is_valid(&at(10)));
    assert!(!of(CacheMode::Auto, 0, 0).is_valid(&at(0)));
    assert!(of(CacheMode::Auto, 1, 5).is_valid(&at(1_000_000_014)));
    assert!(!of(CacheMode::Auto, 1, 5).is_valid(&at(1_000_000_015)));
    assert!(of(CacheMode::Auto, u64::MAX, u32::MAX).is_valid(&at(u64::MAX - 1)));
    assert!(of(CacheMode::Always, 0, 0).is_valid(&at(u64::MAX - 1)));
    assert!(!of(CacheMode::Shared, 1, 0).is_valid(&at(0)), "there is no table");
    assert!(!Validity::NEVER.is_valid(&at(0)));
}

#[test]
fn a_shared_reply_holds_until_the_next_change_whatever_the_server_says() {
    let of = |fetched| Validity::of_reply(CacheMode::Shared, Some(fetched), || 10, 0, 0);
    let valid = of(moment(3, 7));
    assert!(valid.is_valid(&At(u64::MAX, moment(3, 7))));
    assert!(!valid.is_valid(&At(0, moment(3, 8))));
    assert!(!valid.is_valid(&At(0, moment(4, 7))));
}

#[test]
fn parts_hold_together_as_long_as_the_first_that_ends() {
    let of = |epoch, clock| Validity::of_reply(CacheMode::Shared, Some(moment(epoch, clock)), || 0, 0, 0);
    assert_eq!(of(1, 5).and(of(1, 9)), of(1, 5));
    assert_eq!(of(1, 9).and(of(1, 5)), of(1, 5));
    assert_eq!(of(1, 9).and(of(2, 9)), Validity::NEVER);
    assert_eq!(of(1, 9).and(Validity::NEVER), Validity::NEVER);
    let timed = |seconds| Validity::of_reply(CacheMode::Auto, None, || 0, seconds, 0);
    assert_eq!(timed(3).and(timed(2)), timed(2));
}
