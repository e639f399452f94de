//! The user's handle to the process.

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

/// A process that makes views. It ends when this value and all guards are dropped, and when the process that started it
/// ends.
#[derive(Debug)]
pub struct Shim {
    link: Arc<Link>,
    pid: Pid,
}

/// Keeps other processes from shortening a file, until it is dropped.
///
/// truncate(2), ftruncate(2), open(2) with O_TRUNC and fallocate(2) with FALLOC_FL_PUNCH_HOLE or
/// FALLOC_FL_COLLAPSE_RANGE fail with EPERM; operations that keep the file's length are allowed. The user's own process
/// may do anything. Limits: others can still collapse or punch files that they opened before; not all operations
/// through io_uring are recognised, and none by an NFS server on this machine or by an overlay on top of the file; when
/// the process has ended, nothing is prevented.
#[derive(Debug)]
pub struct Guard {
    link: Arc<Link>,
    id: GuardId,
}

/// The connection, locked from a request to its answer.
#[derive(Debug)]
struct Link(Mutex<OwnedFd>);

impl Shim {
    /// Starts the process, and returns once it has made a first view. Call this before starting any thread.
    ///
    /// # Errors
    ///
    /// Returns the first step that failed. No process is left behind.
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
        // The process is ending; it does not matter if someone else has waited for it.
        let _ = waitpid(Some(pid), WaitOptions::empty());
        Err(error)
    }

    /// Makes a view of `file`, a regular file open for reading and writing. Blocks on the file's file system.
    ///
    /// A holder of the view can write the file, but only by mapping it or by read(2) and write(2), and cannot open it
    /// again.
    ///
    /// # Errors
    ///
    /// Returns [`ShimError::Refused`] with EINVAL if it is not a regular file, EACCES if it is not open for reading and
    /// for writing at any offset, and EOPNOTSUPP or ELOOP if the file system allows no views. Returns
    /// [`ShimError::Gone`] if the process has ended.
    pub fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, ShimError> {
        let answer = self.link.ask(Message::View, Some(file))?;
        // A descriptor was sent, but this process has too many open.
        answer.fd.ok_or(ShimError::Refused(Errno::MFILE))
    }

    /// Guards `file`, a regular file, against being shortened by others.
    ///
    /// A mapping is cheaper if its view was made before the first guard of the file.
    ///
    /// # Errors
    ///
    /// Returns [`ShimError::Unguarded`] with EOPNOTSUPP if the kernel (before Linux 6.14) or the file system (tmpfs,
    /// overlayfs) does not support it, EINVAL if it is not a regular file, and ENOSPC if there are 4096 guards. Returns
    /// [`ShimError::Gone`] if the process has ended.
    pub fn guard(&self, file: BorrowedFd<'_>) -> Result<Guard, ShimError> {
        match self.link.ask(Message::Guard, Some(file)) {
            Ok(Received { message: Message::Guarded { id }, .. }) => Ok(Guard { link: self.link.clone(), id }),
            Err(ShimError::Refused(errno)) => Err(ShimError::Unguarded(errno)),
            Ok(_) | Err(_) => Err(ShimError::Gone),
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If the process has ended, there is no guard left to remove.
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
