//! The system calls that the process may make once it is ready; any other kills it.

use std::{collections::BTreeMap, env::consts::ARCH};

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};
use transom_wire::backing::{BACKING_CLOSE, BACKING_OPEN};

/// System calls for each view.
const VIEWS: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_statx,
    libc::SYS_writev,
];

/// System calls for each guard.
const GUARDS: &[libc::c_long] = &[libc::SYS_pread64];

/// System calls of the runtime and the C library.
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
    libc::SYS_write,
];

/// Restricts every thread of this process, irrevocably. Call this after the last fork, because signals to other
/// processes are not allowed.
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
    // The runtime aborts by sending a signal to a thread of this process.
    rules.insert(libc::SYS_tgkill, vec![rule(0, Op::Eq, std::process::id().into())?]);
    // Reading flags of descriptors, also used by debug builds to check whether one is open. F_SETOWN would direct
    // signals to any process.
    let commands = [libc::F_GETFD, libc::F_GETFL].map(|command| rule(1, Op::Eq, command as u64));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_, _>>()?);
    // Marks of one inode only: a mark of a mount or a file system would block every access there by others.
    let marks = [libc::FAN_MARK_ADD, libc::FAN_MARK_REMOVE].map(|flags| rule(1, Op::Eq, flags.into()));
    rules.insert(libc::SYS_fanotify_mark, marks.into_iter().collect::<Result<_, _>>()?);
    let target = TargetArch::try_from(ARCH)?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, target)?.try_into()
}

fn rule(argument: u8, op: Op, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![Condition::new(argument, Len::Dword, op, value)?])
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "system calls with arguments that no library passes")]

    use std::{
        env,
        os::unix::process::ExitStatusExt as _,
        process::{Command, ExitStatus, Stdio},
    };

    use rustix::{process::getppid, thread::gettid};

    use super::*;

    #[test]
    fn the_rules_compile_for_this_machine() {
        program().unwrap();
    }

    /// Runs the ignored test `name` alone, in a process of its own: there is no way back.
    fn run(name: &str) -> ExitStatus {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", &format!("seccomp::tests::{name}"), "--test-threads=1"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
    }

    #[test]
    fn calls_with_other_arguments_than_ours_end_the_process() {
        assert!(run("case_listed").success());
        for name in ["case_signal_to_another_process", "case_owner_of_a_descriptor", "case_mark_of_a_file_system"] {
            let status = run(name);
            assert_eq!(status.signal(), Some(libc::SIGSYS), "{name}: {status}");
        }
    }

    /// Signal 0 has no effect, and is allowed where any other would be.
    fn signal(process: libc::pid_t, thread: libc::pid_t) -> libc::c_long {
        // SAFETY: the call takes three numbers, and signal 0 reaches no handler.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }
    }

    fn mark(flags: u32) {
        // SAFETY: the path may be null, and the group's descriptor, which is not open, is refused with EBADF.
        unsafe { libc::fanotify_mark(-1, flags, libc::FAN_OPEN_PERM, 0, std::ptr::null()) };
    }

    #[test]
    #[ignore = "a case of calls_with_other_arguments_than_ours_end_the_process"]
    fn case_listed() {
        restrict().unwrap();
        assert_eq!(signal(std::process::id().cast_signed(), gettid().as_raw_pid()), 0);
        rustix::fs::fcntl_getfl(std::io::stdin()).unwrap();
        mark(libc::FAN_MARK_ADD);
        mark(libc::FAN_MARK_REMOVE);
    }

    #[test]
    #[ignore = "a case of calls_with_other_arguments_than_ours_end_the_process"]
    fn case_signal_to_another_process() {
        let parent = getppid().unwrap().as_raw_pid();
        restrict().unwrap();
        signal(parent, parent);
    }

    #[test]
    #[ignore = "a case of calls_with_other_arguments_than_ours_end_the_process"]
    fn case_owner_of_a_descriptor() {
        let parent = getppid().unwrap().as_raw_pid();
        restrict().unwrap();
        // SAFETY: the command takes a number.
        unsafe { libc::fcntl(0, libc::F_SETOWN, parent) };
    }

    #[test]
    #[ignore = "a case of calls_with_other_arguments_than_ours_end_the_process"]
    fn case_mark_of_a_file_system() {
        restrict().unwrap();
        mark(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM);
    }
}
