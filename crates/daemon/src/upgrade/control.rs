//! The channel between the supervisor and a daemon: packets of a kind and a text, some with a descriptor.
//!
//! The two may be of different versions, so that the meaning of a packet never changes. A daemon begins with the
//! version of what it can do.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, socketpair};

use super::{printable::printable, receive_packet, send_once, send_packet};

/// What this daemon can do. Raised if a later supervisor has to know.
pub const VERSION: u8 = 1;

/// The longest packet.
const PACKET_LEN_MAX: usize = 4096;

/// What the supervisor sends.
#[derive(Debug)]
pub enum Order {
    /// Say whether the share can be upgraded at all.
    Check,
    /// Send the session through this socket. The rings are stopped.
    HandOver(OwnedFd),
    /// Receive a session through this socket, and go on with it.
    TakeOver(OwnedFd),
    /// The session is yours from now on.
    Begin,
    /// End at once and leave everything as it is: another daemon has the session. Not answered.
    End,
}

/// What a daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is ready, and of this version.
    Ready(u8),
    /// Another process goes on after a death. It has taken requests off these rings, and stands at these positions.
    Restarted(Vec<RingPosition>),
    /// The order is carried out.
    Done,
    /// It is not, for this reason.
    Refused(String),
}

/// Where a ring stands after a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPosition {
    /// The ring.
    pub ring: u16,
    /// The place of the next chain on its available ring.
    pub position: u16,
    /// The front end had stopped the ring, and nothing was taken off it since.
    pub is_stopped: bool,
}

/// One end of the channel.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl From<OwnedFd> for Control {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns two connected sockets that keep packets apart.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Control {
    /// Sends an order to the daemon. Never waits.
    ///
    /// # Errors
    ///
    /// If the daemon is gone, or has not read earlier orders.
    pub fn order(&self, order: &Order) -> io::Result<()> {
        let (kind, socket) = match order {
            Order::Check => (b'?', None),
            Order::HandOver(socket) => (b'<', Some(socket.as_fd())),
            Order::TakeOver(socket) => (b'>', Some(socket.as_fd())),
            Order::Begin => (b'!', None),
            Order::End => (b'.', None),
        };
        Ok(send_once(self.as_fd(), &[kind], socket.as_slice(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Receives an order. Waits; returns `None` once the supervisor is gone.
    ///
    /// # Errors
    ///
    /// If the packet is not an order.
    pub fn receive_order(&self) -> io::Result<Option<Order>> {
        let mut buffer = [0; PACKET_LEN_MAX];
        let (len, mut descriptors) = receive_packet(self.as_fd(), &mut buffer)?;
        match (&buffer[..len], descriptors.pop()) {
            ([], None) => Ok(None),
            (b"?", None) => Ok(Some(Order::Check)),
            (b"<", Some(socket)) => Ok(Some(Order::HandOver(socket))),
            (b">", Some(socket)) => Ok(Some(Order::TakeOver(socket))),
            (b"!", None) => Ok(Some(Order::Begin)),
            (b".", None) => Ok(Some(Order::End)),
            _ => Err(io::Error::other("the supervisor sent an unknown order: upgrade by a restart")),
        }
    }

    /// Sends an answer to the supervisor.
    pub fn answer(&self, answer: &Answer) -> io::Result<()> {
        let packet = match answer {
            Answer::Ready(version) => vec![b'r', *version],
            Answer::Restarted(rings) => {
                let numbers = rings.iter().flat_map(|ring| [ring.ring, ring.position, ring.is_stopped.into()]);
                [b's'].into_iter().chain(numbers.flat_map(u16::to_le_bytes)).collect()
            }
            Answer::Done => vec![b'd'],
            Answer::Refused(reason) => {
                let mut packet = vec![b'n'];
                packet.extend(reason.bytes().take(PACKET_LEN_MAX - 1));
                packet
            }
        };
        send_packet(self.as_fd(), &packet, &[])
    }

    /// Receives an answer. Never waits; returns `None` once the daemon is gone. Descriptors that come along are closed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no answer; others if the packet is not an answer.
    pub fn receive_answer(&self) -> io::Result<Option<Answer>> {
        let mut buffer = [0; PACKET_LEN_MAX];
        let (len, _) = recv(self.as_fd(), &mut buffer, RecvFlags::DONTWAIT)?;
        match &buffer[..len] {
            [] => Ok(None),
            [b'r', version] => Ok(Some(Answer::Ready(*version))),
            [b's', rings @ ..] => Ok(Some(Answer::Restarted(rings.as_chunks().0.iter().map(ring_position).collect()))),
            [b'd'] => Ok(Some(Answer::Done)),
            [b'n', reason @ ..] => Ok(Some(Answer::Refused(printable(&String::from_utf8_lossy(reason))))),
            _ => Err(io::Error::other("an unknown answer")),
        }
    }
}

fn ring_position(bytes: &[u8; 6]) -> RingPosition {
    let [ring, position, is_stopped] = [0, 2, 4].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    RingPosition { ring, position, is_stopped: is_stopped != 0 }
}
