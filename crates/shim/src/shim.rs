//! The process as its user sees it.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, WaitOptions, waitpid},
};

use crate::{
    StartError, ViewError, channel,
    channel::{Message, Received},
    fork, start,
};

/// A process that makes views. It ends when the last copy of this socket is closed, and with the process that started it.
#[derive(Debug)]
pub struct Shim {
    /// Held from a request to its answer.
    socket: Mutex<OwnedFd>,
    pid: Pid,
}

impl Shim {
    /// Starts the process and returns when it has shown that it can make views. To be called before the first thread.
    ///
    /// Errors: the first step that failed; no process is left behind then.
    pub fn start() -> Result<Self, StartError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| StartError::Process(errno.into()))?;
        let pid = fork::fork(theirs, start::run).map_err(StartError::Process)?;
        let error = match channel::receive(&ours) {
            Ok(Some(Received { message: Message::Ready, .. })) => return Ok(Self { socket: Mutex::new(ours), pid }),
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

    /// A view of `file`, a regular file open for reading and writing. Any thread may ask; blocks on the file's file system.
    ///
    /// Whoever gets the view can write the file. Nothing can be read, written or changed through the view other than by
    /// mapping it or by read(2) and write(2), and nobody can open it anew.
    ///
    /// Errors: [`ViewError::Refused`] with EINVAL for what is no regular file, EACCES for one that is not open for
    /// writing at any place, EOPNOTSUPP or ELOOP where the file system allows no views; [`ViewError::Gone`].
    pub fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, ViewError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        channel::send(&*socket, Message::View, Some(file)).map_err(|_| ViewError::Gone)?;
        match channel::receive(&*socket) {
            Ok(Some(Received { message: Message::Ready, fd: Some(view) })) => Ok(view),
            // It was sent, and did not fit into this process.
            Ok(Some(Received { message: Message::Ready, fd: None })) => {
                Err(ViewError::Refused(rustix::io::Errno::MFILE))
            }
            Ok(Some(Received { message: Message::Failed { errno, .. }, .. })) => Err(ViewError::Refused(errno)),
            Ok(_) | Err(_) => Err(ViewError::Gone),
        }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}
