//! The system calls that are disturbed, and how each may fail on a machine that is short of something or broken.

use rustix::io::Errno;

use crate::listener::Question;

/// Calls that are never disturbed.
///
/// Memory, threads' own affairs, signals and waiting: for these, failures are no states of a machine that a program
/// meets, or ones that the standard library answers by ending the process. Sockets, events and the log, through `read`
/// and `write`: they are the connection to this test, not part of a request.
pub(crate) const UNDISTURBED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_execve,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_accept4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
];

/// How this call may fail; none where it cannot, or where failing would need its effect as well.
///
/// A `close` that fails has closed nonetheless, and a thread that cannot return to its own ids ends the process, since
/// it would serve others with the rights of one caller: Linux does not let that fail.
pub(crate) fn failures(call: &Question) -> &'static [Errno] {
    const NONE: &[Errno] = &[];
    let to_other_id = !matches!(call.args[1] as u32, 0 | u32::MAX);
    match call.number {
        libc::SYS_openat | libc::SYS_openat2 => &[Errno::MFILE, Errno::NOMEM, Errno::IO, Errno::INTR],
        libc::SYS_open_by_handle_at => &[Errno::MFILE, Errno::NOMEM, Errno::IO],
        libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_symlinkat
        | libc::SYS_linkat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_fsetxattr => &[Errno::NOSPC, Errno::IO, Errno::NOMEM],
        libc::SYS_pwritev2 | libc::SYS_pwrite64 | libc::SYS_copy_file_range | libc::SYS_fallocate => {
            &[Errno::NOSPC, Errno::IO, Errno::INTR]
        }
        libc::SYS_preadv2 | libc::SYS_pread64 | libc::SYS_ftruncate => &[Errno::IO, Errno::INTR, Errno::NOMEM],
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => &[Errno::IO, Errno::NOSPC],
        libc::SYS_fcntl => match call.args[1] as i32 {
            libc::F_DUPFD_CLOEXEC | libc::F_DUPFD => &[Errno::MFILE],
            libc::F_OFD_SETLK => &[Errno::NOLCK, Errno::NOMEM],
            libc::F_OFD_SETLKW => &[Errno::NOLCK, Errno::INTR],
            libc::F_OFD_GETLK => &[Errno::NOMEM],
            _ => NONE,
        },
        libc::SYS_flock => &[Errno::NOLCK, Errno::INTR],
        libc::SYS_setresuid | libc::SYS_setresgid if to_other_id => &[Errno::NOMEM, Errno::AGAIN],
        libc::SYS_setgroups if call.args[0] == 1 => &[Errno::NOMEM],
        libc::SYS_clone | libc::SYS_clone3 => &[Errno::AGAIN, Errno::NOMEM],
        libc::SYS_statx
        | libc::SYS_fstat
        | libc::SYS_newfstatat
        | libc::SYS_statfs
        | libc::SYS_fstatfs
        | libc::SYS_name_to_handle_at
        | libc::SYS_unlinkat
        | libc::SYS_fchmod
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_utimensat
        | libc::SYS_getdents64
        | libc::SYS_lseek
        | libc::SYS_readlinkat
        | libc::SYS_faccessat
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_flistxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_fremovexattr
        | libc::SYS_fchdir
        | libc::SYS_unshare
        | libc::SYS_ioctl => &[Errno::IO, Errno::NOMEM],
        _ => NONE,
    }
}

/// A name for messages; the number where it has none here.
pub(crate) fn name(number: libc::c_long) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(libc::$name => stringify!($name)["SYS_".len()..].into(),)*
                _ => format!("call {number}"),
            }
        };
    }
    names! {
        SYS_capset SYS_clone SYS_clone3 SYS_close SYS_copy_file_range SYS_faccessat SYS_fallocate SYS_fchdir SYS_fchmod
        SYS_fchmodat SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr
        SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_getdents64 SYS_getxattr SYS_ioctl SYS_lgetxattr
        SYS_linkat SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_mkdirat SYS_mknodat
        SYS_name_to_handle_at SYS_newfstatat SYS_open_by_handle_at SYS_openat SYS_openat2 SYS_pread64 SYS_preadv2
        SYS_pwrite64 SYS_pwritev2 SYS_readlinkat SYS_removexattr SYS_renameat SYS_renameat2 SYS_setgroups SYS_setresgid
        SYS_setresuid SYS_setxattr SYS_statfs SYS_statx SYS_symlinkat SYS_syncfs SYS_unlinkat SYS_unshare SYS_utimensat
    }
}
