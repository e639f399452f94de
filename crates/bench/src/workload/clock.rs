//! A clock that is cheap to read: the processor's time stamp counter if there is one.
//!
//! In User Mode Linux, `clock_gettime` is a system call of several microseconds, as long as some of the measured
//! operations. Ticks have no unit here; [`super::laps::Laps`] calibrates them against the system's clock.
#![expect(unsafe_code, reason = "reads the time stamp counter")]

/// Returns the counter.
#[cfg(target_arch = "x86_64")]
pub(super) fn ticks() -> u64 {
    // SAFETY: RDTSC has no operands and touches no memory. It could only fault where CR4.TSD is set, which Linux does
    // for processes that asked for it by PR_SET_TSC; nothing in this program does.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the counter.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
