//! The messages between the user and the process: packets of three numbers and at most one descriptor.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
    process::Pid,
};

use crate::{Step, guards::GuardId};

/// A request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Request: make a view of the attached file.
    View,
    /// Request: guard the attached file.
    Guard,
    /// Request: remove a guard.
    Unguard { id: GuardId },
    /// Reply: done; the view, if one was requested, is attached.
    Ready,
    /// Reply: the file is guarded.
    Guarded { id: GuardId },
    /// Reply: the request failed.
    Failed {
        /// The step that failed.
        step: Step,
        /// The error.
        errno: Errno,
    },
}

/// A received message with its descriptor.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    pub(crate) fd: Option<OwnedFd>,
    /// The sending process, if the socket passes credentials.
    pub(crate) sender: Option<Pid>,
}

/// Length of a message in bytes.
const LEN: usize = 12;

impl Message {
    fn to_bytes(self) -> [u8; LEN] {
        let [kind, first, second] = match self {
            Self::View => [1, 0, 0],
            Self::Guard => [2, 0, 0],
            Self::Unguard { id } => [3, id as u32, (id >> 32) as u32],
            Self::Ready => [4, 0, 0],
            Self::Guarded { id } => [5, id as u32, (id >> 32) as u32],
            Self::Failed { step, errno } => [6, step as u32, errno.raw_os_error().cast_unsigned()],
        };
        let mut bytes = [0; LEN];
        for (place, number) in bytes.chunks_exact_mut(4).zip([kind, first, second]) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; LEN]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let [kind, first, second] = [0, 1, 2].map(|at: usize| u32::from_ne_bytes(words[at]));
        let id = u64::from(first) | u64::from(second) << 32;
        match kind {
            1 => Some(Self::View),
            2 => Some(Self::Guard),
            3 => Some(Self::Unguard { id }),
            4 => Some(Self::Ready),
            5 => Some(Self::Guarded { id }),
            6 => Some(Self::Failed {
                step: Step::from_u32(first)?,
                errno: Errno::from_raw_os_error(second.cast_signed()),
            }),
            _ => None,
        }
    }
}

/// Sends one message.
pub(crate) fn send(socket: impl AsFd, message: Message, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let bytes = message.to_bytes();
    let fds: &[BorrowedFd<'_>] = fd.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::MSGSIZE);
    }
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Waits for a message. Returns `None` if the other side has closed the socket.
///
/// # Errors
///
/// Returns EBADMSG for an invalid message.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Received>, Errno> {
    let mut bytes = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let len =
        retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC))?
            .bytes;
    let (mut fd, mut sender) = (None, None);
    for received in control.drain() {
        match received {
            RecvAncillaryMessage::ScmRights(fds) => fd = fds.last().or(fd),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    match len {
        0 => Ok(None),
        LEN => Ok(Some(Received { message: Message::from_bytes(bytes).ok_or(Errno::BADMSG)?, fd, sender })),
        _ => Err(Errno::BADMSG),
    }
}
