//! The processor time of another process in nanoseconds; `/proc/PID/stat` counts in units of 10 ms.
#![expect(unsafe_code, reason = "clock_gettime of a clock that rustix has no name for")]

/// What the kernel calls CPUCLOCK_SCHED: the scheduler's own account, user and system time together.
const SCHED: libc::clockid_t = 2;

/// User and system time of all threads of `pid`, the ended ones included; `None` once the process is gone.
pub(super) fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The layout of the clock's id is what clock_getcpuclockid(3) computes: the complement of the process id above
    // three bits that say which clock.
    let clock = (!libc::pid_t::try_from(pid).ok()? << 3) | SCHED;
    // SAFETY: `time` is a timespec of ours that outlives the call; the kernel answers an unknown clock with an error.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_process_grows_with_its_work_and_ends_with_it() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        while process_cpu_ns(std::process::id()).unwrap() == before {}
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(process_cpu_ns(pid), None);
    }
}
