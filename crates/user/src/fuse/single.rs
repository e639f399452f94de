//! What a thread leaves out while there is one caller only, who asks again once he has his reply.
//!
//! A system call costs up to a microsecond where the processor needs help against its own speculation, and a request of a single
//! caller takes few that do anything: the others look for what cannot be there yet. So the thread watches the ring in memory for
//! the reply rather than asking the kernel for a second request, and lets the caller run before it asks for his next one.
//! Every so often it asks all the same: there may be another caller by now.

use std::hint;

use crate::platform::now_ns;

/// So many requests in a row that came alone make a single caller.
const ALONE: u8 = 4;
/// A single caller is looked after in the ordinary way once in so many requests.
const CHECK_EACH: u8 = 16;

/// The longest watch in memory: a reply to a small request of a daemon that is awake takes half as long.
const SPIN_MAX_NS: u64 = 12_000;
/// A budget below this is none.
const SPIN_MIN_NS: u64 = 1_500;
/// So many replies are not watched for after the budget was used up.
const RESTS: u8 = 64;

pub(super) struct Single {
    /// There is a processor for the daemon beside this thread's.
    may_spin: bool,
    /// Requests that came alone, one after the other.
    alone: u8,
    /// Requests until the next ordinary one.
    until_check: u8,
    spin_ns: u64,
    rests: u8,
}

impl Single {
    pub(super) fn new(processors: usize) -> Self {
        Self { may_spin: processors > 1, alone: 0, until_check: CHECK_EACH, spin_ns: SPIN_MAX_NS, rests: 0 }
    }

    /// The kernel had `count` requests, and no more.
    pub(super) fn came(&mut self, count: usize) {
        match count {
            0 => {}
            1 => self.alone = (self.alone + 1).min(ALONE),
            _ => self.alone = 0,
        }
    }

    /// Whether the kernel has nothing while a request is under way, as far as one knows.
    pub(super) fn is_so(&self) -> bool {
        self.alone == ALONE && self.until_check > 0
    }

    /// A request was taken. Watches for its reply if there is a single caller; tells whether it has come.
    pub(super) fn watch(&mut self, has_reply: impl FnMut() -> bool) -> bool {
        if self.alone < ALONE {
            return false;
        }
        if self.until_check == 0 {
            self.until_check = CHECK_EACH;
            return false;
        }
        self.until_check -= 1;
        self.may_spin && self.spin(has_reply)
    }

    fn spin(&mut self, mut has_reply: impl FnMut() -> bool) -> bool {
        if self.rests > 0 {
            self.rests -= 1;
            return false;
        }
        let until_ns = now_ns() + self.spin_ns;
        loop {
            if has_reply() {
                self.spin_ns = SPIN_MAX_NS;
                return true;
            }
            if now_ns() >= until_ns {
                break;
            }
            hint::spin_loop();
        }
        self.spin_ns /= 2;
        if self.spin_ns < SPIN_MIN_NS {
            (self.spin_ns, self.rests) = (SPIN_MAX_NS / 2, RESTS);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single() -> Single {
        let mut single = Single::new(2);
        (0..ALONE).for_each(|_| single.came(1));
        single
    }

    #[test]
    fn requests_that_come_alone_make_a_single_caller_until_two_come() {
        let mut single = Single::new(2);
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
            assert_eq!((0..CHECK_EACH).filter(|_| single.watch(|| true)).count(), usize::from(CHECK_EACH));
            assert!(!single.is_so() && !single.watch(|| true));
            assert!(single.is_so());
        }
    }

    #[test]
    fn replies_that_take_long_are_seldom_watched_for() {
        let mut single = single();
        let (mut watched, mut looks) = (0, 0);
        for _ in 0..500 {
            looks = 0;
            single.watch(|| {
                looks += 1;
                false
            });
            watched += u32::from(looks > 0);
        }
        assert!((1..50).contains(&watched), "{watched}");
        single.rests = 0;
        single.until_check = 1;
        assert!(single.watch(|| true));
        assert_eq!(single.spin_ns, SPIN_MAX_NS);
        let _ = looks;
    }

    #[test]
    fn with_one_processor_nothing_is_watched_for_in_memory() {
        let mut single = single();
        single.may_spin = false;
        assert!(single.is_so() && !single.watch(|| panic!("the daemon cannot run")));
    }
}
