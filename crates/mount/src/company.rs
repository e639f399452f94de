//! Whether a thread that watches shares its processor with another one that watches, for example the daemon's.
//!
//! Each yield of the one then runs the other, which yields in turn, and the caller sleeps on a processor of his own, from which
//! waking him takes as long as all the rest. The scheduler sees two processors in use and leaves it at that, for tens of
//! milliseconds. So the thread counts, and goes to another processor by itself.

use nix::sys::resource::{UsageWho, getrusage};
use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};

/// Yields that are counted together: of a request of one caller there are about five in such company.
const WINDOW: u16 = 64;
/// So many of them have run others, with an eighth for those that found nobody for a moment; who is alone does not switch.
const SWITCHES_MIN: i64 = 56;
/// At most so many turns meanwhile had something to do: those who ask or reply are good company.
const WORKS_MAX: u16 = WINDOW / 2;
/// Going elsewhere costs some 25 µs; this is about one part in a hundred.
const STAYS_NS: u64 = 2_000_000;
/// With more processors some are mostly idle, and the scheduler is left to use them.
const PROCESSORS_MAX: u32 = 4;

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
    /// A turn had something to do.
    pub(super) fn worked(&mut self) {
        self.works = self.works.saturating_add(1);
    }

    /// Counts a yield; true if the thread should go elsewhere. Calls `switches`, which is a system call, twice a window.
    pub(super) fn yielded(&mut self, now_ns: u64, switches: impl FnOnce() -> i64) -> bool {
        if self.yields == 0 {
            *self = Self { yields: 1, works: 0, switches: switches(), stays_until_ns: self.stays_until_ns };
            return false;
        }
        self.yields += 1;
        if self.yields <= WINDOW {
            return false;
        }
        self.yields = 0;
        let switched = switches() - self.switches;
        let is_crowd = switched >= SWITCHES_MIN && self.works <= WORKS_MAX && now_ns >= self.stays_until_ns;
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

/// Goes to another of the processors that this thread may use, if there are few; it may use the same ones afterwards.
pub(super) fn go_elsewhere() {
    // It fails where there are more processors than rustix knows of: we stay then.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(others) = others(&allowed, sched_getcpu()) else { return };
    if let Err(error) = sched_setaffinity(None, &others) {
        tracing::debug!(%error, "a thread of a mount cannot go to another processor");
        return;
    }
    if let Err(error) = allow(&allowed) {
        tracing::warn!(%error, "a thread of a mount may use fewer processors than before");
    }
}

fn others(allowed: &CpuSet, here: usize) -> Option<CpuSet> {
    let mut others = *allowed;
    others.unset(here);
    (1..PROCESSORS_MAX).contains(&others.count()).then_some(others)
}

/// Lets this thread use `allowed`, and where that is all it can have, whatever there is later: processors that go online, and a cpuset
/// that is widened.
fn allow(allowed: &CpuSet) -> Result<(), Errno> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    sched_setaffinity(None, &all)?;
    if sched_getaffinity(None)? == *allowed { Ok(()) } else { sched_setaffinity(None, allowed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows in which so many of the yields switched, with so many turns that had something to do; tells how many made a crowd.
    fn windows(company: &mut Company, count: u16, switched: i64, works: u16, now_ns: u64) -> u16 {
        let mut crowds = 0;
        for _ in 0..count {
            assert!(!company.yielded(now_ns, || 1000));
            (0..works).for_each(|_| company.worked());
            crowds += (0..WINDOW).map(|_| u16::from(company.yielded(now_ns, || 1000 + switched))).sum::<u16>();
        }
        crowds
    }

    #[test]
    fn one_who_yields_to_another_who_watches_goes_elsewhere_but_not_at_once_again() {
        let mut company = Company::default();
        assert_eq!(windows(&mut company, 5, SWITCHES_MIN, WORKS_MAX, 1), 1);
        assert_eq!(windows(&mut company, 5, SWITCHES_MIN, WORKS_MAX, STAYS_NS), 0);
        assert_eq!(windows(&mut company, 5, SWITCHES_MIN, WORKS_MAX, STAYS_NS + 1), 1);
    }

    #[test]
    fn one_who_is_alone_or_yields_to_those_who_ask_stays() {
        let mut company = Company::default();
        assert_eq!(windows(&mut company, 5, SWITCHES_MIN - 1, 0, 1), 0);
        assert_eq!(windows(&mut company, 5, i64::from(WINDOW), WORKS_MAX + 1, 1), 0);
    }

    #[test]
    fn elsewhere_is_any_other_processor_where_there_are_few() {
        let set = |processors: &[usize]| {
            let mut set = CpuSet::new();
            processors.iter().for_each(|&processor| set.set(processor));
            set
        };
        assert!(others(&set(&[0, 3]), 3) == Some(set(&[0])));
        assert!(others(&set(&[0, 1, 2, 3]), 1) == Some(set(&[0, 2, 3])));
        assert!(others(&set(&[3]), 3).is_none());
        assert!(others(&set(&[0, 1, 2, 3, 4]), 1).is_none());
    }

    #[test]
    fn a_thread_that_goes_elsewhere_may_use_the_same_processors_afterwards() {
        let allowed = sched_getaffinity(None).unwrap();
        go_elsewhere();
        assert!(sched_getaffinity(None).unwrap() == allowed);

        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).unwrap();
        allow(&one).unwrap();
        assert!(sched_getaffinity(None).unwrap() == one, "who was given one processor keeps to it");
    }

    #[test]
    fn yields_that_run_another_thread_are_counted() {
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).unwrap();
        let before = switches();
        std::thread::scope(|scope| {
            // It inherits the processor, and cannot end before we let it run.
            let other = scope.spawn(|| (0..1000).for_each(|_| std::thread::yield_now()));
            while !other.is_finished() {
                std::thread::yield_now();
            }
        });
        assert!(switches() > before);
    }
}
