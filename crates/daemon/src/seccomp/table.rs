//! The system calls that a serving daemon makes, sorted by name, each with its reason.
//!
//! `ordinary` calls occur in any thorough run: `tests/seccomp_usage.rs` observes one and fails if an ordinary call was
//! not made, or if a call was made that is not listed. `rare` calls occur in situations that a run cannot provoke: on
//! failure, on other kernels, with other builds of the C library.

use super::{Call, arguments::Arguments};

macro_rules! calls {
    ($($number:ident: $often:ident $(($arguments:ident))?, $why:literal;)*) => {
        &[$(Call {
            number: libc::$number,
            symbol: stringify!($number),
            is_rare: calls!(@ $often),
            arguments: calls!(@ arguments $($arguments)?),
            why: $why,
        }),*]
    };
    (@ ordinary) => { false };
    (@ rare) => { true };
    (@ arguments) => { Arguments::Any };
    (@ arguments $arguments:ident) => { Arguments::$arguments };
}

/// The calls that every daemon makes, on every architecture.
pub(super) const CALLS: &[Call] = calls! {
    SYS_accept4: ordinary, "a front end connects";
    SYS_brk: rare, "the allocator grows its first heap";
    SYS_capget: ordinary, "CAP_FSETID is dropped around writes that have to clear set-id bits";
    SYS_capset: ordinary, "CAP_FSETID is dropped around writes that have to clear set-id bits";
    SYS_clock_gettime: rare, "the time, where the vDSO has no clock";
    SYS_clock_nanosleep: rare, "a pause before trying again";
    SYS_clone: ordinary (NewThread), "a worker starts";
    SYS_clone3: ordinary, "a worker starts: answered with ENOSYS, so that the C library takes clone";
    SYS_close: ordinary, "a file, an event, a connection is closed";
    SYS_copy_file_range: ordinary, "COPY_FILE_RANGE";
    SYS_epoll_create1: ordinary, "a queue's worker prepares to wait";
    SYS_epoll_ctl: ordinary, "a queue starts or stops";
    SYS_epoll_pwait: rare, "a worker waits for its queue, where epoll_wait is no call of its own";
    SYS_eventfd2: ordinary, "one thread wakes another";
    SYS_exit: ordinary, "a worker ends";
    SYS_exit_group: ordinary, "the daemon ends";
    SYS_faccessat: rare, "files that may be mapped through the window";
    SYS_fallocate: ordinary, "FALLOCATE";
    SYS_fchdir: ordinary, "names relative to an inode, for calls that take a path alone";
    SYS_fchmodat: ordinary, "SETATTR of a mode";
    SYS_fchownat: ordinary, "SETATTR of an owner";
    SYS_fcntl: ordinary (KnownFcntl), "locks of open files, flags of descriptors";
    SYS_fdatasync: ordinary, "FSYNC of data alone";
    SYS_flock: ordinary, "SETLK from flock";
    SYS_fremovexattr: rare, "a write takes a file's capabilities away";
    SYS_fstat: rare, "a file's kind and size, from the C library";
    SYS_fstatfs: ordinary, "STATFS";
    SYS_fsync: ordinary, "FSYNC, FSYNCDIR";
    SYS_ftruncate: ordinary, "SETATTR of a size";
    SYS_futex: ordinary, "locks and waiting between threads";
    SYS_getdents64: ordinary, "READDIR, READDIRPLUS";
    SYS_getegid: rare, "which group to return to";
    SYS_geteuid: rare, "which user to return to";
    SYS_getgroups: ordinary, "which supplementary groups to return to";
    SYS_getpid: rare, "the process id in messages to the system log";
    SYS_getrandom: rare, "keys of hash tables";
    SYS_getsockopt: rare (AnySocket), "the back end's own channel to the front end is looked at when it arrives";
    SYS_gettid: rare, "a thread is named or signalled";
    SYS_getxattr: ordinary, "GETXATTR through /proc/self/fd";
    SYS_ioctl: ordinary (KnownIoctl), "flags of files, blocking mode of sockets, what a pipe holds";
    SYS_linkat: ordinary, "LINK, and giving a name to a temporary file";
    SYS_listxattr: ordinary, "LISTXATTR through /proc/self/fd";
    SYS_lseek: ordinary, "LSEEK, and the position of a directory";
    SYS_madvise: ordinary, "the allocator and ended threads return memory";
    SYS_membarrier: rare, "ordering between threads, in some builds of the C library";
    SYS_mkdirat: ordinary, "MKDIR";
    SYS_mknodat: ordinary, "MKNOD";
    SYS_mmap: ordinary (NotExecutable), "the guest's memory, stacks, large allocations";
    SYS_mprotect: ordinary (NotExecutable), "stacks and heaps become usable";
    SYS_mremap: rare, "a large allocation grows";
    SYS_munmap: ordinary, "the guest's memory, stacks, large allocations";
    SYS_newfstatat: rare, "a file's kind and size, from the C library";
    SYS_openat: ordinary, "an inode is opened anew through /proc/self/fd";
    SYS_openat2: ordinary, "LOOKUP, CREATE: names never lead out of the share";
    SYS_ppoll: rare, "waiting for a descriptor";
    SYS_prctl: ordinary (ThreadName), "a worker gets its name";
    SYS_pread64: rare, "a short read at an offset";
    SYS_preadv: rare, "READ, where preadv2 is missing";
    SYS_preadv2: ordinary, "READ";
    SYS_pwrite64: rare, "a short write at an offset";
    SYS_pwritev: rare, "WRITE, where pwritev2 is missing";
    SYS_pwritev2: ordinary, "WRITE";
    SYS_read: ordinary, "events of queues";
    SYS_readlinkat: ordinary, "READLINK";
    SYS_recvfrom: rare, "a reader of the metrics asks";
    SYS_recvmsg: ordinary, "messages of the front end";
    SYS_removexattr: ordinary, "REMOVEXATTR through /proc/self/fd";
    SYS_renameat: ordinary, "RENAME";
    SYS_renameat2: ordinary, "RENAME2";
    SYS_restart_syscall: rare, "the kernel resumes an interrupted wait";
    SYS_rseq: ordinary, "the C library registers a new thread";
    SYS_rt_sigaction: rare, "the C library ends the process over a fault of its own";
    SYS_rt_sigprocmask: ordinary, "threads start and end with signals blocked";
    SYS_rt_sigreturn: rare, "a handler of the runtime returns";
    SYS_rt_sigtimedwait: ordinary, "the thread that waits for signals";
    SYS_sched_getaffinity: ordinary, "the number of processors; a new thread's stack";
    SYS_sched_yield: rare, "workers that watch their queues, a contended lock";
    SYS_sendmsg: ordinary, "answers to the front end";
    SYS_sendto: rare, "messages to the system log";
    SYS_set_robust_list: ordinary, "the C library registers a new thread";
    SYS_setgroups: ordinary, "a caller's supplementary group is taken on and left";
    SYS_setresgid: ordinary, "a caller's group is taken on and left";
    SYS_setresuid: ordinary, "a caller's user is taken on and left";
    SYS_setsockopt: rare (SocketTimeout), "a bound on the time of a reader of the metrics";
    SYS_setxattr: ordinary, "SETXATTR through /proc/self/fd";
    SYS_shutdown: ordinary, "a connection ends";
    SYS_sigaltstack: ordinary, "a thread's stack for the detection of overflows";
    SYS_statx: ordinary, "LOOKUP, GETATTR, STATX";
    SYS_symlinkat: ordinary, "SYMLINK";
    SYS_syncfs: ordinary, "SYNCFS";
    SYS_tgkill: rare (OwnProcess), "the runtime aborts; a wait for a lock is interrupted";
    SYS_umask: rare, "the guest's umask, where it applies its own";
    SYS_unlinkat: ordinary, "UNLINK, RMDIR";
    SYS_unshare: ordinary (OwnDirectory), "a worker gets a working directory and a umask of its own";
    SYS_utimensat: ordinary, "SETATTR of times";
    SYS_write: ordinary, "events of queues, messages to standard error";
    SYS_writev: rare, "messages to standard error";
};

/// The calls about file handles, which a daemon with `--inode-file-handles never` is not allowed.
pub(super) const HANDLE_CALLS: &[Call] = calls! {
    SYS_name_to_handle_at: ordinary, "an inode's file handle";
    SYS_open_by_handle_at: ordinary, "an inode that is held by its handle";
};

/// The call of a daemon that observes single directories.
pub(super) const OBSERVING_CALLS: &[Call] = calls! {
    SYS_fanotify_mark: rare, "a directory becomes known to the guest, or is forgotten (--events without privileges)";
};

/// Calls that the C library still makes on this architecture, while others only have their successors.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER_CALLS: &[Call] = calls! {
    SYS_epoll_wait: ordinary, "a worker waits for its queue";
    SYS_poll: rare, "waiting for a descriptor";
    SYS_unlink: rare, "the socket is removed at the end, without a sandbox";
};

#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER_CALLS: &[Call] = calls! {};
