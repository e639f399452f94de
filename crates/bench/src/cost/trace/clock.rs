//! The clock that a traced daemon reads.
//!
//! A traced thread is some thousand times slower than by itself. So that what it does by the clock is what it does
//! otherwise, time goes by as if an instruction took half a nanosecond and a system call 500.

use rustix::time::{ClockId, clock_gettime};

use crate::cost::counts::Counts;

/// Time as a traced daemon sees it.
pub(super) struct Clock {
    monotonic_ns: i64,
    realtime_ns: i64,
    /// What had been counted when the clock was set.
    set_at_ns: i64,
    /// Time that nobody used.
    idle_ns: i64,
}

const NS_PER_CALL: f64 = 500.0;
const NS_PER_INSTRUCTION: f64 = 0.5;
const SECOND_NS: i64 = 1_000_000_000;

impl Clock {
    /// Returns a clock that shows the time of now, when `counts` have been counted.
    pub(super) fn new(counts: &Counts) -> Self {
        let now_ns = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec * SECOND_NS + time.tv_nsec
        };
        Self {
            monotonic_ns: now_ns(ClockId::Monotonic),
            realtime_ns: now_ns(ClockId::Realtime),
            set_at_ns: used_ns(counts),
            idle_ns: 0,
        }
    }

    /// Returns the nanoseconds since the clock was set.
    pub(super) fn elapsed_ns(&self, counts: &Counts) -> i64 {
        used_ns(counts) - self.set_at_ns + self.idle_ns
    }

    /// Lets time go by in which nobody runs.
    pub(super) fn idle(&mut self, ns: i64) {
        self.idle_ns += ns;
    }

    /// Returns seconds and nanoseconds of the clock `id`, if it is one of those that are shown.
    pub(super) fn read(&self, id: i32, counts: &Counts) -> Option<[i64; 2]> {
        let begin_ns = match id {
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE => self.monotonic_ns,
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => self.realtime_ns,
            _ => return None,
        };
        let now_ns = begin_ns + self.elapsed_ns(counts);
        Some([now_ns / SECOND_NS, now_ns % SECOND_NS])
    }
}

fn used_ns(counts: &Counts) -> i64 {
    let instructions = counts.instructions + counts.library_instructions;
    (instructions * NS_PER_INSTRUCTION + counts.all_system_calls() * NS_PER_CALL) as i64
}
