//! Messages of vhost-user as the supervisor passes them on: a header, a payload that it mostly does not look at, and
//! descriptors.
//!
//! [`Connection`] never blocks. It accepts what the protocol allows and no more: payloads up to [`PAYLOAD_LEN_MAX`],
//! [`DESCRIPTORS_MAX`] descriptors with each message.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};

use super::request;

/// Length of a header: request, flags, and the payload's length.
pub(super) const HEADER_LEN: usize = 12;
/// The longest payload. The daemon accepts none that is longer.
const PAYLOAD_LEN_MAX: usize = 4096;
/// The most descriptors of a message. The daemon accepts no more.
const DESCRIPTORS_MAX: usize = 32;

/// The version in each header's flags.
const VERSION: u32 = 1;
/// Header flag: this is a reply.
const REPLY: u32 = 1 << 2;
/// Header flag: the sender wants a reply to a request that has none of its own.
const NEEDS_REPLY: u32 = 1 << 3;

/// A message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// Shared with what is recorded of the message.
    pub(super) descriptors: Vec<Arc<OwnedFd>>,
}

impl Message {
    /// Creates a request of the front end.
    pub(super) fn request(request: u32, payload: &[u8], descriptors: Vec<Arc<OwnedFd>>) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
        for field in [request, VERSION, payload.len() as u32] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(payload);
        Self { bytes, descriptors }
    }

    /// Returns the number of the request, or of the request that this replies to.
    pub(super) fn number(&self) -> u32 {
        field(&self.bytes, 0)
    }

    pub(super) fn is_reply(&self) -> bool {
        field(&self.bytes, 4) & REPLY != 0
    }

    /// Returns whether the sender wants an acknowledgement, if both sides know them.
    pub(super) fn needs_reply(&self) -> bool {
        field(&self.bytes, 4) & NEEDS_REPLY != 0
    }

    /// Returns whether this request is answered by more than an acknowledgement.
    pub(super) fn has_reply_of_its_own(&self) -> bool {
        const OWN: [u32; 10] = [
            request::GET_FEATURES,
            request::GET_PROTOCOL_FEATURES,
            request::GET_VRING_BASE,
            request::GET_QUEUE_NUM,
            request::GET_CONFIG,
            request::GET_MAX_MEM_SLOTS,
            request::GET_SHMEM_CONFIG,
            request::SET_LOG_BASE,
            request::SET_DEVICE_STATE_FD,
            request::CHECK_DEVICE_STATE,
        ];
        OWN.contains(&self.number())
    }

    /// Returns the reply to this request that says that it succeeded.
    pub(super) fn acknowledgement(&self) -> Self {
        let mut reply = Self::request(self.number(), &0u64.to_le_bytes(), vec![]);
        reply.bytes[4..8].copy_from_slice(&(VERSION | REPLY).to_le_bytes());
        reply
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Returns the 32-bit number at `offset` of the payload.
    pub(super) fn u32_at(&self, offset: usize) -> Option<u32> {
        let bytes = self.payload().get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Returns the 64-bit number at `offset` of the payload.
    pub(super) fn u64_at(&self, offset: usize) -> Option<u64> {
        let bytes = self.payload().get(offset..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }
}

fn field(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// What came of an attempt to receive.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    /// There is no whole message yet.
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// A connection to a front end or to a daemon.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// What has come of the next message.
    partial: Vec<u8>,
    descriptors: Vec<Arc<OwnedFd>>,
    /// What could not be sent yet: bytes, and descriptors that go with the first of them.
    unsent: Vec<u8>,
    unsent_descriptors: Vec<Arc<OwnedFd>>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (partial, unsent) = (Vec::new(), Vec::new());
        Ok(Self { stream, partial, descriptors: Vec::new(), unsent, unsent_descriptors: Vec::new() })
    }

    /// Receives a message, if a whole one has come.
    ///
    /// # Errors
    ///
    /// If the peer does not keep to the protocol.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        loop {
            let wanted = self.wanted()?;
            if self.partial.len() == wanted {
                let bytes = std::mem::take(&mut self.partial);
                return Ok(Received::Message(Message { bytes, descriptors: std::mem::take(&mut self.descriptors) }));
            }
            let before = self.partial.len();
            self.partial.resize(wanted, 0);
            let received = receive(&self.stream, &mut self.partial[before..], &mut self.descriptors);
            self.partial.truncate(before + received.as_ref().copied().unwrap_or(0));
            match received {
                Ok(0) => return Ok(Received::End),
                Ok(_) if self.descriptors.len() > DESCRIPTORS_MAX => {
                    return Err(io::Error::other("a message has more than 32 descriptors"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Received::End),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the length of the message that has begun, as far as it is known.
    fn wanted(&self) -> io::Result<usize> {
        if self.partial.len() < HEADER_LEN {
            return Ok(HEADER_LEN);
        }
        match field(&self.partial, 8) as usize {
            len if len <= PAYLOAD_LEN_MAX => Ok(HEADER_LEN + len),
            len => Err(io::Error::other(format!("a message of {len} bytes exceeds the limit of {PAYLOAD_LEN_MAX}"))),
        }
    }

    /// Queues a message and sends what can be sent now.
    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        // Descriptors go with the first byte of a message: one at a time.
        if !self.unsent.is_empty() {
            return Err(io::Error::other("a message was queued behind another"));
        }
        self.unsent.extend_from_slice(&message.bytes);
        self.unsent_descriptors.clone_from(&message.descriptors);
        self.flush()
    }

    /// Sends what is left, as far as it can be sent now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match send(&self.stream, &self.unsent, &self.unsent_descriptors) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    self.unsent_descriptors.clear();
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Returns whether something is left to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }
}

fn receive(stream: &UnixStream, buffer: &mut [u8], descriptors: &mut Vec<Arc<OwnedFd>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights.map(Arc::new));
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("a message has more than 32 descriptors, or the limit on open files is reached"));
    }
    Ok(received.bytes)
}

fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[Arc<OwnedFd>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}
