//! The rate of the host's time stamp counter, which QEMU's emulation hands on to the guest as it is.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "reading the counter is an intrinsic function"))]

use std::sync::OnceLock;

/// Returns the rate in kHz, or `None` where there is no such counter. Measures it the first time, which takes some
/// milliseconds.
///
/// A guest that measures its counter itself compares it with an emulated timer. On a busy host, which does not run the
/// emulator for a moment, it finds as little as a third of the rate, and its clock then runs three times as fast.
pub(crate) fn rate_khz() -> Option<u32> {
    static RATE: OnceLock<Option<u32>> = OnceLock::new();
    *RATE.get_or_init(measure)
}

#[cfg(target_arch = "x86_64")]
fn measure() -> Option<u32> {
    use std::{
        arch::x86_64::_rdtsc,
        thread,
        time::{Duration, Instant},
    };

    /// A look at both takes about 100 ns, or some microseconds where Linux itself reads another clock: an error of a
    /// thousandth at most. Linux corrects a rate that is wrong by less than a hundredth.
    const BETWEEN: Duration = Duration::from_millis(5);
    /// Few enough to take no time, and enough that one of them is not interrupted.
    const LOOKS: usize = 16;

    // SAFETY: RDTSC has no operands and touches no memory. It could only fault where CR4.TSD is set, which Linux does
    // for processes that asked for it by PR_SET_TSC; nothing in this program does.
    let ticks = || unsafe { _rdtsc() };
    // The counter and the clock at one moment.
    let look = || {
        let of_one = || {
            let before = ticks();
            let now = Instant::now();
            (ticks().wrapping_sub(before), before, now)
        };
        (0..LOOKS).map(|_| of_one()).min_by_key(|&(width, ..)| width)
    };
    let (_, ticks_before, before) = look()?;
    thread::sleep(BETWEEN);
    let (_, ticks_after, after) = look()?;
    let elapsed_ns = after.duration_since(before).as_nanos();
    let khz = u128::from(ticks_after.wrapping_sub(ticks_before)) * 1_000_000 / elapsed_ns.max(1);
    u32::try_from(khz).ok().filter(|&khz| khz > 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn measure() -> Option<u32> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_same_each_time() {
        let [first, second] = [(); 2].map(|()| f64::from(measure().unwrap()));
        assert!((first / second - 1.0).abs() < 0.01, "{first} {second}");
        assert!((100_000.0..10_000_000.0).contains(&first), "{first} kHz");
    }
}
