//! [`LoneCaller`]: which system calls a worker leaves out while a single caller makes one request after the other.
//!
//! A system call costs up to a microsecond on processors with mitigations, and most of those around a request of a lone
//! caller look for something that cannot be there yet. So the worker polls the ring in memory for the reply instead of
//! asking the kernel for a second request, and lets the caller run before it asks for the next one. Every now and then
//! it asks anyway: there may be another caller by now.

use std::hint;

use transom_user::platform::now_ns;

/// This many requests in a row that came alone make a lone caller.
const ALONE_MIN: u8 = 4;
/// One request in this many is handled as if there could be other callers.
const CHECK_INTERVAL: u8 = 16;

/// The longest poll in memory. A daemon that is awake answers a small request in half of this.
const SPIN_MAX_NS: u64 = 12_000;
/// A budget below this counts as none.
const SPIN_MIN_NS: u64 = 1_500;
/// After the budget is used up, this many replies are not polled for.
const BACKOFF_REPLIES: u8 = 64;

/// What one worker knows about its callers.
pub(super) struct LoneCaller {
    /// The longest poll in memory; 0 if no processor is left for the daemon.
    spin_max_ns: u64,
    /// Requests in a row that came alone.
    alone: u8,
    /// Requests until the next one that is handled as if there could be other callers.
    until_check: u8,
    spin_ns: u64,
    /// Replies that are not polled for.
    backoff: u8,
}

impl LoneCaller {
    /// Creates the state of one of `workers` workers, which may poll for `poll_max_ns`.
    pub(super) fn new(poll_max_ns: u32, workers: usize, processors: usize) -> Self {
        let spin_max_ns = if processors > workers { SPIN_MAX_NS.min(poll_max_ns.into()) } else { 0 };
        Self { spin_max_ns, alone: 0, until_check: CHECK_INTERVAL - 1, spin_ns: spin_max_ns, backoff: 0 }
    }

    /// Records that the kernel had `count` requests with replies, and no more.
    pub(super) fn record_requests(&mut self, count: u16) {
        match count {
            0 => {}
            1 => self.alone = (self.alone + 1).min(ALONE_MIN),
            _ => self.alone = 0,
        }
    }

    /// Returns whether there seems to be a single caller, so that the kernel has no request while one is in flight.
    pub(super) fn is_alone(&self) -> bool {
        self.alone == ALONE_MIN
    }

    /// Polls for the reply to the only request in flight, if there is a single caller. Returns whether it has come.
    pub(super) fn poll_reply(&mut self, has_reply: impl FnMut() -> bool) -> bool {
        if !self.is_alone() {
            return false;
        }
        if self.until_check == 0 {
            self.until_check = CHECK_INTERVAL - 1;
            return false;
        }
        self.until_check -= 1;
        self.spin_max_ns > 0 && self.spin(has_reply)
    }

    fn spin(&mut self, mut has_reply: impl FnMut() -> bool) -> bool {
        if self.backoff > 0 {
            self.backoff -= 1;
            return false;
        }
        let deadline_ns = now_ns() + self.spin_ns;
        loop {
            if has_reply() {
                self.spin_ns = self.spin_max_ns;
                return true;
            }
            if now_ns() >= deadline_ns {
                break;
            }
            hint::spin_loop();
        }
        self.spin_ns /= 2;
        if self.spin_ns < SPIN_MIN_NS {
            (self.spin_ns, self.backoff) = (self.spin_max_ns / 2, BACKOFF_REPLIES);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone_caller() -> LoneCaller {
        let mut caller = LoneCaller::new(50_000, 1, 2);
        (0..ALONE_MIN).for_each(|_| caller.record_requests(1));
        caller
    }

    #[test]
    fn requests_that_come_alone_make_a_lone_caller_until_two_come_at_once() {
        let mut caller = LoneCaller::new(50_000, 1, 2);
        for _ in 1..ALONE_MIN {
            caller.record_requests(1);
            assert!(!caller.is_alone() && !caller.poll_reply(|| panic!("there may be other callers")));
        }
        caller.record_requests(1);
        caller.record_requests(0);
        assert!(caller.is_alone() && caller.poll_reply(|| true));
        caller.record_requests(2);
        assert!(!caller.is_alone() && !caller.poll_reply(|| panic!("there are two")));
    }

    #[test]
    fn every_now_and_then_the_kernel_is_asked_anyway() {
        let mut caller = lone_caller();
        for _ in 0..3 {
            assert!((1..CHECK_INTERVAL).all(|_| caller.poll_reply(|| true)));
            assert!(!caller.poll_reply(|| panic!("the kernel is to be asked")));
        }
    }

    #[test]
    fn replies_that_take_long_are_seldom_polled_for() {
        let mut caller = lone_caller();
        let mut polls = 0;
        for _ in 0..500 {
            let mut has_polled = false;
            caller.poll_reply(|| {
                has_polled = true;
                false
            });
            polls += u32::from(has_polled);
        }
        assert!((1..50).contains(&polls), "{polls}");
        // A reply that comes in time restores the budget.
        (caller.backoff, caller.until_check) = (0, 1);
        assert!(caller.poll_reply(|| true));
        assert_eq!(caller.spin_ns, SPIN_MAX_NS);
    }

    #[test]
    fn nothing_is_polled_for_without_a_processor_for_the_daemon_or_with_polling_off() {
        for mut caller in [LoneCaller::new(50_000, 1, 1), LoneCaller::new(50_000, 2, 2), LoneCaller::new(0, 1, 2)] {
            (0..ALONE_MIN).for_each(|_| caller.record_requests(1));
            assert!(caller.is_alone() && !caller.poll_reply(|| panic!("it polls")));
        }
    }
}
