//! Reads from `/proc` which system call a thread is waiting in.
//!
//! For io_uring it shows only that io_uring is used, and nothing for threads outside our pid namespace. [`Call`] is the
//! result.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, openat, statat},
    io::{Errno, pread},
    process::Pid,
};

/// The part of a system call that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Opening a file, with these flags of open(2).
    Open { flags: u64 },
    /// fallocate(2), with this mode.
    Fallocate { mode: u64 },
    /// truncate(2) or ftruncate(2), to this size.
    Truncate { len: u64 },
    /// Any operation through io_uring.
    Ring,
    /// Something else, or unknown.
    Other,
}

/// Contents of the `syscall` file of a thread that is running.
const RUNNING: &str = "running\n";
/// Number of attempts, the first of them without a pause.
const ATTEMPTS: u32 = 2000;
const ATTEMPTS_AT_ONCE: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// `/proc` of our pid namespace. Reading about threads of other users needs CAP_SYS_PTRACE.
#[derive(Debug)]
pub(crate) struct Proc(OwnedFd);

impl Proc {
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(rustix::fs::CWD, "/proc", flags, Mode::empty()).map(Self)
    }

    /// Returns whether `thread` belongs to `process`.
    pub(crate) fn has_thread(&self, process: Pid, thread: Pid) -> bool {
        statat(&self.0, format!("{process}/task/{thread}"), AtFlags::empty()).is_ok()
    }

    /// Returns the call in which `thread` waits, once it waits, or [`Call::Other`] after about a second.
    pub(crate) fn call(&self, thread: Pid) -> Call {
        let mut text = [0; 256];
        for attempt in 0..ATTEMPTS {
            let len = self.read(thread, "syscall", 0, &mut text).unwrap_or_default();
            // An event can be read before its thread sleeps, and each verdict wakes threads that wait for other
            // verdicts.
            match str::from_utf8(&text[..len]).unwrap_or_default() {
                RUNNING if attempt < ATTEMPTS_AT_ONCE => thread::yield_now(),
                RUNNING => thread::sleep(PAUSE),
                text => return self.parse(thread, text),
            }
        }
        Call::Other
    }

    /// Parses `text`: the number of the call, its arguments, and two more numbers.
    fn parse(&self, thread: Pid, text: &str) -> Call {
        let mut words = text.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.parse::<libc::c_long>().ok());
        let argument = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let arguments: Vec<u64> = words.map_while(argument).collect();
        match (number, &arguments[..]) {
            // A kernel thread of a ring. Other kernel threads of rings show the call that created them.
            (Some(-1), _) => Call::Ring,
            (Some(number), &[a, b, c, d, ..]) => self.understand(thread, number, [a, b, c, d]),
            _ => Call::Other,
        }
    }

    fn understand(&self, thread: Pid, number: libc::c_long, [_, second, third, _]: [u64; 4]) -> Call {
        match number {
            libc::SYS_openat | libc::SYS_open_by_handle_at => Call::Open { flags: third },
            libc::SYS_openat2 => Call::Open { flags: self.open_how_flags(thread, third) },
            libc::SYS_fallocate => Call::Fallocate { mode: second },
            libc::SYS_io_uring_enter => Call::Ring,
            libc::SYS_truncate | libc::SYS_ftruncate => Call::Truncate { len: second },
            #[cfg(target_arch = "x86_64")]
            _ => other_x86(number, second, third),
            #[cfg(not(target_arch = "x86_64"))]
            _ => Call::Other,
        }
    }

    /// Returns the flags in `struct open_how`, its first member, or 0 if they cannot be read.
    fn open_how_flags(&self, thread: Pid, address: u64) -> u64 {
        let mut flags = [0; 8];
        match self.read(thread, "mem", address, &mut flags) {
            Ok(8) => u64::from_ne_bytes(flags),
            _ => 0,
        }
    }

    fn read(&self, thread: Pid, name: &str, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let file = openat(&self.0, format!("{thread}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        pread(file.as_fd(), bytes, offset)
    }
}

/// Recognises calls that only x86 has, and those of 32-bit programs. In 64-bit programs, the latter numbers neither
/// open nor change a file, so the ambiguity is harmless.
#[cfg(target_arch = "x86_64")]
fn other_x86(number: libc::c_long, second: u64, third: u64) -> Call {
    const I386_OPEN: libc::c_long = 5;
    const I386_CREAT: libc::c_long = 8;
    const I386_TRUNCATE: libc::c_long = 92;
    const I386_FTRUNCATE: libc::c_long = 93;
    const I386_TRUNCATE64: libc::c_long = 193;
    const I386_FTRUNCATE64: libc::c_long = 194;
    const I386_OPENAT: libc::c_long = 295;
    const I386_FALLOCATE: libc::c_long = 324;
    match number {
        libc::SYS_open | I386_OPEN => Call::Open { flags: second },
        libc::SYS_creat | I386_CREAT => Call::Open { flags: OFlags::TRUNC.bits().into() },
        I386_OPENAT => Call::Open { flags: third },
        I386_FALLOCATE => Call::Fallocate { mode: second },
        I386_TRUNCATE | I386_FTRUNCATE => Call::Truncate { len: second },
        I386_TRUNCATE64 | I386_FTRUNCATE64 => Call::Truncate { len: second & u64::from(u32::MAX) | third << 32 },
        _ => Call::Other,
    }
}
