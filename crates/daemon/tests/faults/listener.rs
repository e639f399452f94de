//! A seccomp filter that asks this test before each system call of a process, and the listener that hears the
//! questions.
//!
//! See seccomp_unotify(2). The filter is installed in the child before it executes its program, and passes through
//! every thread of it. Calls that are not asked about cost nothing but the filter.

#![expect(unsafe_code, reason = "seccomp(2), its listener, and what a child does before it executes a program")]

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, IoSlice, IoSliceMut},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};

/// Hears of the calls of one process.
pub(crate) struct Listener(OwnedFd);

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) id: u64,
    /// The thread that makes the call.
    pub(crate) tid: u32,
    pub(crate) number: libc::c_long,
    pub(crate) args: [u64; 6],
}

/// Where the listener of a command that is about to start will arrive.
pub(crate) struct Arrival(UnixStream);

/// Makes `command` ask about all calls but `unasked`. To be called before it is spawned.
pub(crate) fn ask(command: &mut Command, unasked: &[libc::c_long]) -> io::Result<Arrival> {
    let (ours, theirs) = UnixStream::pair()?;
    let filter = program(unasked);
    let in_child = move || {
        let listener = install(&filter)?;
        send_fd(&theirs, listener.as_fd())?;
        // Nobody answers yet if closing it is asked about. It is closed when the program is executed.
        std::mem::forget(listener);
        Ok(())
    };
    // SAFETY: the closure makes system calls and nothing else: it allocates no memory and takes no lock.
    unsafe { command.pre_exec(in_child) };
    Ok(Arrival(ours))
}

/// Tries whether such filters are permitted here.
pub(crate) fn try_out() -> io::Result<()> {
    let mut command = Command::new("true");
    command.stdin(Stdio::null());
    // SAFETY: as above; the filter asks about nothing, since its only instruction allows.
    unsafe {
        command.pre_exec(|| install(&[statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)]).map(drop))
    };
    command.status().map(drop)
}

impl Arrival {
    /// The listener, once the command was spawned.
    pub(crate) fn listener(self) -> io::Result<Listener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&self.0, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        fds.flatten().next().map(Listener).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Listener {
    /// The next question; `None` after `timeout`. Errors: `BrokenPipe` where the process has ended.
    pub(crate) fn next(&self, timeout: Duration) -> io::Result<Option<Question>> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            outcome => outcome?,
        };
        if !fds[0].revents().contains(PollFlags::IN) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // SAFETY: a structure of integers.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes one such structure, which has to be zero before.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) } != 0 {
            return match io::Error::last_os_error() {
                // The thread was interrupted before it could be asked about.
                error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
                error => Err(error),
            };
        }
        let number = asked.data.nr.into();
        Ok(Some(Question { id: asked.id, tid: asked.pid, number, args: asked.data.args }))
    }

    /// Lets the call be made.
    pub(crate) fn allow(&self, question: Question) -> io::Result<()> {
        self.answer(question, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// Lets the call fail without being made.
    pub(crate) fn fail(&self, question: Question, errno: Errno) -> io::Result<()> {
        self.answer(question, -errno.raw_os_error(), 0)
    }

    fn answer(&self, question: Question, error: i32, flags: u32) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_resp { id: question.id, val: 0, error, flags };
        // SAFETY: the request reads one such structure.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // A signal has ended the wait of the thread: it makes the call again and asks again, or fails with
                // EINTR.
                error if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                error => Err(error),
            },
        }
    }
}

/// Installs `filter` for this process. Returns its listener.
fn install(filter: &[libc::sock_filter]) -> io::Result<File> {
    // SAFETY: takes no memory.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which is not changed meanwhile.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match RawFd::try_from(fd) {
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(fd @ 0..) => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn send_fd(socket: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Allows the calls `unasked` and asks about all others. The process has one architecture, which is this one's.
fn program(unasked: &[libc::c_long]) -> Vec<libc::sock_filter> {
    // The call's number is the first field of `seccomp_data`.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &number in unasked {
        let equals = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code: equals, jt: 0, jf: 1, k: number as u32 });
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
