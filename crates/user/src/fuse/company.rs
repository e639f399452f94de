//! Whether a thread that watches shares its processor with another one that watches, for example the daemon's.
//!
//! Each yield of the one then runs the other, which yields in turn, and the caller sleeps on a processor of his own, from which
//! waking him takes longer than all the rest. The scheduler sees two processors in use and leaves it at that, for tens of
//! milliseconds. So the thread counts, and goes to another processor by itself.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Yields after which one looks.
const WINDOW: u16 = 64;
/// So many of them have run others: who is alone on his processor does not switch.
const SWITCHES_MIN: i64 = 56;
/// At most so many of them were followed by something to do: those who ask or reply are good company.
const WORKS_MAX: u16 = WINDOW / 2;
/// Going elsewhere costs some 20 µs; this is one part in a hundred.
const STAYS_NS: u64 = 2_000_000;

#[derive(Default)]
pub(super) struct Company {
    yields: u16,
    works: u16,
    /// At the first yield of the window.
    switches: i64,
    /// Until when the thread stays where it is.
    stays_until_ns: u64,
}

impl Company {
    /// There was something to do.
    pub(super) fn worked(&mut self) {
        self.works = self.works.saturating_add(1);
    }

    /// The thread has yielded, and has been switched for others so often in its life, which costs a system call to ask. Whether it
    /// should watch elsewhere.
    pub(super) fn yielded(&mut self, now_ns: u64, switches: impl FnOnce() -> i64) -> bool {
        self.yields += 1;
        if self.yields < WINDOW {
            return false;
        }
        let (works, now_switches) = (self.works, switches());
        let switched = now_switches - std::mem::replace(&mut self.switches, now_switches);
        (self.yields, self.works) = (0, 0);
        let is_crowd = switched >= SWITCHES_MIN && works <= WORKS_MAX && now_ns >= self.stays_until_ns;
        if is_crowd {
            self.stays_until_ns = now_ns + STAYS_NS;
        }
        is_crowd
    }
}

/// How often this thread was switched for another while it could have gone on, since it began.
pub(super) fn switches() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// Goes to another of the processors that this thread may use, if there is one; it may use the same ones afterwards.
pub(super) fn go_elsewhere() {
    // It fails where there are more processors than rustix knows of: we stay then.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(sched_getcpu());
    if others.count() == 0 {
        return;
    }
    if let Err(error) = sched_setaffinity(None, &others).and_then(|()| sched_setaffinity(None, &allowed)) {
        tracing::debug!(%error, "a thread of a mount cannot go to another processor");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows in which so many of the yields switched, and so many were followed by work.
    fn windows(company: &mut Company, count: u16, switched: i64, works: u16, now_ns: u64) -> u16 {
        let mut crowds = 0;
        for _ in 0..count {
            (0..works).for_each(|_| company.worked());
            let total = company.switches + switched;
            crowds += (0..WINDOW).map(|_| u16::from(company.yielded(now_ns, || total))).sum::<u16>();
        }
        crowds
    }

    #[test]
    fn one_who_yields_to_another_who_watches_goes_elsewhere_but_not_at_once_again() {
        let mut company = Company::default();
        let all = i64::from(WINDOW);
        assert_eq!(windows(&mut company, 5, all, 0, 1), 1);
        assert_eq!(windows(&mut company, 5, all, 0, STAYS_NS), 0);
        assert_eq!(windows(&mut company, 5, all, 0, STAYS_NS + 1), 1);
    }

    #[test]
    fn one_who_is_alone_or_yields_to_those_who_ask_stays() {
        let mut company = Company::default();
        assert_eq!(windows(&mut company, 5, 0, 0, 1), 0);
        assert_eq!(windows(&mut company, 5, i64::from(WINDOW), WINDOW, 1), 0);
    }

    #[test]
    fn yields_that_run_another_thread_are_counted_and_going_elsewhere_leaves_the_processors_allowed() {
        let allowed = sched_getaffinity(None).unwrap();
        let here = sched_getcpu();
        go_elsewhere();
        if allowed.count() > 1 {
            assert_ne!(here, sched_getcpu());
        }
        assert!(sched_getaffinity(None).unwrap() == allowed);

        let mut one = rustix::thread::CpuSet::new();
        one.set(here);
        sched_setaffinity(None, &one).unwrap();
        go_elsewhere();
        assert_eq!(sched_getcpu(), here, "there is no other");
        let before = switches();
        std::thread::scope(|scope| {
            // It inherits the processor.
            let other = scope.spawn(|| (0..1000).for_each(|_| std::thread::yield_now()));
            while !other.is_finished() {
                std::thread::yield_now();
            }
        });
        assert!(switches() - before > 100, "two threads on one processor have yielded to each other");
    }
}
