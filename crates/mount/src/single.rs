//! What a thread leaves out while there is one caller only, who asks again once he has his reply.
//!
//! A system call costs up to a microsecond where the processor needs help against its own speculation, and a request of a single
//! caller takes few that do anything: the others look for what cannot be there yet. So the thread watches the ring in memory for
//! the reply rather than asking the kernel for a second request, and lets the caller run before it asks for his next one.
//! Every so often it asks all the same: there may be another caller by now.

use std::hint;

use transom_user::platform::now_ns;

/// So many requests in a row that came alone make a single caller.
const ALONE: u8 = 4;
/// A single caller is looked after in the ordinary way once in so many requests.
const CHECK_EACH: u8 = 16;

/// The longest watch in memory where the mount may watch for so long: a reply to a small request of a daemon that is awake takes
/// half as long.
const SPIN_MAX_NS: u64 = 12_000;
/// A budget below this is none.
const SPIN_MIN_NS: u64 = 1_500;
/// So many replies are not watched for after the budget was used up.
const RESTS: u8 = 64;

pub(super) struct Single {
    /// The longest watch in memory; 0 where there is no processor for the daemon beside those of the mount's threads.
    spin_max_ns: u64,
    /// Requests that came alone, one after the other.
    alone: u8,
    /// Requests until the next ordinary one.
    until_check: u8,
    spin_ns: u64,
    rests: u8,
}

impl Single {
    /// For each of `threads`, which may watch for `poll_max_ns`.
    pub(super) fn new(poll_max_ns: u32, threads: usize, processors: usize) -> Self {
        let spin_max_ns = if processors > threads { SPIN_MAX_NS.min(poll_max_ns.into()) } else { 0 };
        Self { spin_max_ns, alone: 0, until_check: CHECK_EACH - 1, spin_ns: spin_max_ns, rests: 0 }
    }

    /// The kernel had `count` requests that are answered, and no more.
    pub(super) fn came(&mut self, count: u16) {
        match count {
            0 => {}
            1 => self.alone = (self.alone + 1).min(ALONE),
            _ => self.alone = 0,
        }
    }

    /// Whether the kernel has nothing while a request is under way, as far as one knows.
    pub(super) fn is_so(&self) -> bool {
        self.alone == ALONE
    }

    /// A request was taken, the only one under way. Watches for its reply if there is a single caller; tells whether it has come.
    pub(super) fn watch(&mut self, has_reply: impl FnMut() -> bool) -> bool {
        if !self.is_so() {
            return false;
        }
        if self.until_check == 0 {
            self.until_check = CHECK_EACH - 1;
            return false;
        }
        self.until_check -= 1;
        self.spin_max_ns > 0 && self.spin(has_reply)
    }

    fn spin(&mut self, mut has_reply: impl FnMut() -> bool) -> bool {
        if self.rests > 0 {
            self.rests -= 1;
            return false;
        }
        let until_ns = now_ns() + self.spin_ns;
        loop {
            if has_reply() {
                self.spin_ns = self.spin_max_ns;
                return true;
            }
            if now_ns() >= until_ns {
                break;
            }
            hint::spin_loop();
        }
        self.spin_ns /= 2;
        if self.spin_ns < SPIN_MIN_NS {
            (self.spin_ns, self.rests) = (self.spin_max_ns / 2, RESTS);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single() -> Single {
        let mut single = Single::new(50_000, 1, 2);
        (0..ALONE).for_each(|_| single.came(1));
        single
    }

    #[test]
    fn requests_that_come_alone_make_a_single_caller_until_two_come() {
        let mut single = Single::new(50_000, 1, 2);
        for _ in 1..ALONE {
            single.came(1);
            assert!(!single.is_so() && !single.watch(|| panic!("nobody is watched for yet")));
        }
        single.came(1);
        single.came(0);
        assert!(single.is_so() && single.watch(|| true));
        single.came(2);
        assert!(!single.is_so() && !single.watch(|| panic!("there are two")));
    }

    #[test]
    fn now_and_then_the_kernel_is_asked_all_the_same() {
        let mut single = single();
        for _ in 0..3 {
            assert!((1..CHECK_EACH).all(|_| single.watch(|| true)));
            assert!(!single.watch(|| panic!("the kernel is to be asked")));
        }
    }

    #[test]
    fn replies_that_take_long_are_seldom_watched_for() {
        let mut single = single();
        let mut watched = 0;
        for _ in 0..500 {
            let mut has_looked = false;
            single.watch(|| {
                has_looked = true;
                false
            });
            watched += u32::from(has_looked);
        }
        assert!((1..50).contains(&watched), "{watched}");
        // One that comes makes it as before.
        (single.rests, single.until_check) = (0, 1);
        assert!(single.watch(|| true));
        assert_eq!(single.spin_ns, SPIN_MAX_NS);
    }

    #[test]
    fn nothing_is_watched_for_in_memory_without_a_processor_for_the_daemon_or_leave_to_watch() {
        for mut single in [Single::new(50_000, 1, 1), Single::new(50_000, 2, 2), Single::new(0, 1, 2)] {
            (0..ALONE).for_each(|_| single.came(1));
            assert!(single.is_so() && !single.watch(|| panic!("it is watched for")));
        }
    }
}
