//! The monotonic clock as a number, which takes fewer instructions to subtract than an `Instant`.

use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds.
///
/// The first call of a process asks the kernel for its function that reads the clock, by prctl(2): make it before a
/// filter of system calls is set.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let times: Vec<u64> = (0..100).map(|_| now_ns()).collect();
        assert!(times.is_sorted());
    }
}
