//! The messages between the user and the process: three numbers and at most one descriptor, one packet each.

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

/// What one side says to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The user wants a view of the file beside this.
    View,
    /// The user wants the file beside this guarded.
    Guard,
    /// The user wants that no more.
    Unguard { id: GuardId },
    /// It is done; a view, if one was wanted, is beside this.
    Ready,
    /// It is done.
    Guarded { id: GuardId },
    /// It is not done.
    Failed {
        /// What was tried.
        step: Step,
        /// How it failed.
        errno: Errno,
    },
}

/// A message with its descriptor.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    pub(crate) fd: Option<OwnedFd>,
    /// The process that it came from, where the socket was told to say so.
    pub(crate) sender: Option<Pid>,
}

/// Bytes of a message.
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

/// Waits for a message. `None`: the other side has closed its end.
///
/// Errors: EBADMSG for what is no message of ours.
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
