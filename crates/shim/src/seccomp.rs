//! The system calls that the process makes once it is ready; any other ends it.

use std::{collections::BTreeMap, env::consts::ARCH};

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};
use transom_wire::backing::{BACKING_CLOSE, BACKING_OPEN};

/// What is called for each view.
const VIEWS: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_statx,
    libc::SYS_writev,
];

/// What is called for each guard.
const GUARDS: &[libc::c_long] = &[libc::SYS_fanotify_mark, libc::SYS_pread64];

/// What the runtime and the C library call for themselves.
const RUNTIME: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
];

/// Restricts every thread of this process. There is no way back.
pub(crate) fn restrict() -> Result<(), Errno> {
    let program = program().map_err(|_| Errno::INVAL)?;
    apply_filter_all_threads(&program).map_err(|_| Errno::INVAL)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<_, _> =
        VIEWS.iter().chain(GUARDS).chain(RUNTIME).map(|&number| (number, Vec::new())).collect();
    let requests = [BACKING_OPEN, BACKING_CLOSE];
    let requests = requests.map(|request| rule(1, Op::Eq, u64::from(request)));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    let executable = u64::from(libc::PROT_EXEC.cast_unsigned());
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(number, vec![rule(2, Op::MaskedEq(executable), 0)?]);
    }
    let target = TargetArch::try_from(ARCH)?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, target)?.try_into()
}

fn rule(argument: u8, op: Op, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![Condition::new(argument, Len::Dword, op, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_compile_for_this_machine() {
        program().unwrap();
    }
}
