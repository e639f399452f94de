//! An upgrade in place: what the supervisor and a daemon that it has started say to each other.
//!
//! With `--upgradable`, the process that the caller starts is the [`supervisor`](crate::supervisor). It starts the
//! daemon as a child, and to upgrade it a second one, which takes the session over. [`control`] is the channel between
//! the supervisor and a daemon, [`answer`] the daemon's thread at its end, and [`transfer`] carries the session from
//! one daemon to the other. [`printable`] makes texts of a daemon fit for a terminal.

pub mod answer;
pub mod control;
pub mod printable;
pub mod transfer;

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
};

/// The most descriptors of one packet. The kernel's limit is 253.
const DESCRIPTORS_MAX: usize = 64;

/// Sends one packet with descriptors. Waits while the peer does not read.
fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    loop {
        match send_once(socket, bytes, descriptors, SendFlags::NOSIGNAL) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            // Too many descriptors are on their way; the peer is about to receive some.
            Err(Errno::TOOMANYREFS) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends one packet with descriptors.
pub(crate) fn send_once(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

/// Receives one packet into `buffer`. Returns its length, 0 at the end, and its descriptors.
pub(crate) fn receive_packet(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("a packet was cut off: is the limit on open files reached?"));
    }
    Ok((received.bytes, descriptors))
}
