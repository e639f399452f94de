//! The process as its user sees it.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, WaitOptions, waitpid},
};

use crate::{
    ShimError, StartError,
    channel::{self, Message, Received},
    fork,
    guards::GuardId,
    start,
};

/// A process that makes views. It ends with this value and all guards, and with the process that started it.
#[derive(Debug)]
pub struct Shim {
    link: Arc<Link>,
    pid: Pid,
}

/// Keeps other processes from making a file shorter, until it is dropped.
///
/// truncate(2), ftruncate(2), open(2) with O_TRUNC and fallocate(2) with a hole or a collapse fail with EPERM; whatever
/// leaves the file at least as long goes on. The user's own process may do anything. What others have opened before can
/// still be collapsed or given holes. Not all of what comes through io_uring is recognised, and nothing of what an NFS
/// server of this machine or an overlay on top of the file does. When the process has ended, nothing is held back.
#[derive(Debug)]
pub struct Guard {
    link: Arc<Link>,
    id: GuardId,
}

/// The connection, held from a request to its answer.
#[derive(Debug)]
struct Link(Mutex<OwnedFd>);

impl Shim {
    /// Starts the process and returns when it has shown that it can make views. To be called before the first thread.
    ///
    /// Errors: the first step that failed; no process is left behind then.
    pub fn start() -> Result<Self, StartError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| StartError::Process(errno.into()))?;
        let pid = fork::fork(theirs, start::run).map_err(StartError::Process)?;
        let error = match channel::receive(&ours) {
            Ok(Some(Received { message: Message::Ready, .. })) => {
                return Ok(Self { link: Arc::new(Link(Mutex::new(ours))), pid });
            }
            Ok(Some(Received { message: Message::Failed { step, errno }, .. })) => {
                StartError::Step { step, source: errno.into() }
            }
            Ok(_) | Err(_) => StartError::Died,
        };
        drop(ours);
        // It is about to end; a status that somebody else has taken is no matter.
        let _ = waitpid(Some(pid), WaitOptions::empty());
        Err(error)
    }

    /// A view of `file`, a regular file open for reading and writing. Any thread may ask; blocks on the file's file
    /// system.
    ///
    /// Whoever gets the view can write the file. Nothing can be read, written or changed through the view other than by
    /// mapping it or by read(2) and write(2), and nobody can open it anew.
    ///
    /// Errors: [`ShimError::Refused`] with EINVAL for what is no regular file, EACCES for one that is not open for
    /// writing at any place, EOPNOTSUPP or ELOOP where the file system allows no views; [`ShimError::Gone`].
    pub fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, ShimError> {
        let answer = self.link.ask(Message::View, Some(file))?;
        // It was sent, and did not fit into this process.
        answer.fd.ok_or(ShimError::Refused(Errno::MFILE))
    }

    /// Guards `file`, a regular file, against being made shorter. Any thread may ask.
    ///
    /// A mapping costs less when its view was made before the first guard of the file.
    ///
    /// Errors: [`ShimError::Unguarded`] with EOPNOTSUPP where the kernel (before Linux 6.14) or the file system (tmpfs,
    /// overlayfs) has no such thing, EINVAL for what is not a regular file, ENOSPC where there are 4096 guards;
    /// [`ShimError::Gone`].
    pub fn guard(&self, file: BorrowedFd<'_>) -> Result<Guard, ShimError> {
        match self.link.ask(Message::Guard, Some(file)) {
            Ok(Received { message: Message::Guarded { id }, .. }) => Ok(Guard { link: self.link.clone(), id }),
            Err(ShimError::Refused(errno)) => Err(ShimError::Unguarded(errno)),
            Ok(_) | Err(_) => Err(ShimError::Gone),
        }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without the process there is no guard left to end.
        let _ = self.link.ask(Message::Unguard { id: self.id }, None);
    }
}

impl Link {
    fn ask(&self, request: Message, file: Option<BorrowedFd<'_>>) -> Result<Received, ShimError> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel::send(&*socket, request, file).map_err(|_| ShimError::Gone)?;
        match channel::receive(&*socket) {
            Ok(Some(Received { message: Message::Failed { errno, .. }, .. })) => Err(ShimError::Refused(errno)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) | Err(_) => Err(ShimError::Gone),
        }
    }
}
