//! vhost-user messages as bytes: sends well-formed and malformed ones, and receives the replies.
//!
//! Written from the vhost-user specification, independently of the library that the daemon uses, so that a misreading
//! on one side shows.

use std::{
    io::{self, IoSlice, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::turn::Turn;

/// The request numbers of a front end.
#[allow(missing_docs, reason = "the names are the specification's")]
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const RESET_DEVICE: u32 = 34;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_DEVICE_STATE_FD: u32 = 42;
    pub const CHECK_DEVICE_STATE: u32 = 43;
    pub const GET_SHMEM_CONFIG: u32 = 44;
}

/// The feature bits of GET_PROTOCOL_FEATURES.
#[allow(missing_docs, reason = "the names are the specification's")]
pub mod protocol_feature {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const BACKEND_SEND_FD: u64 = 1 << 10;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const SHARED_OBJECT: u64 = 1 << 18;
    pub const DEVICE_STATE: u64 = 1 << 19;
    pub const SHMEM: u64 = 1 << 22;
}

/// The version in each header's flags.
pub const VERSION: u32 = 1;
/// Header flag: this is a reply.
pub const REPLY: u32 = 1 << 2;
/// Header flag: requests an acknowledgement of a message that has no reply of its own.
pub const NEED_REPLY: u32 = 1 << 3;
/// Length of a header in bytes: request, flags, and payload size.
pub const HEADER_LEN: usize = 12;
/// The longest payload of a reply that is accepted, in bytes; the longest in use is a configuration.
const REPLY_LEN_MAX: usize = 4096;
/// How long a reply may take before the peer is considered hung.
pub const HANG_AFTER: Duration = Duration::from_secs(120);

/// One region of guest memory in SET_MEM_TABLE, ADD_MEM_REG and REM_MEM_REG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The guest address.
    pub guest_addr: u64,
    /// The length in bytes.
    pub size: u64,
    /// The front end's virtual address; ring addresses are of this kind.
    pub user_addr: u64,
    /// The offset in the file, in bytes.
    pub mmap_offset: u64,
}

impl Region {
    /// Returns the region as encoded in a message.
    pub fn to_bytes(self) -> Vec<u8> {
        u64s(&[self.guest_addr, self.size, self.user_addr, self.mmap_offset])
    }
}

/// Returns the payload of SET_MEM_TABLE.
pub fn mem_table(regions: &[Region]) -> Vec<u8> {
    let mut payload = u32s(&[regions.len() as u32, 0]);
    regions.iter().for_each(|region| payload.extend(region.to_bytes()));
    payload
}

/// Encodes 32-bit fields in little-endian order.
pub fn u32s(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// Encodes 64-bit fields in little-endian order.
pub fn u64s(fields: &[u64]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// Encodes a header.
pub fn header(request: u32, flags: u32, size: usize) -> Vec<u8> {
    u32s(&[request, flags, size as u32])
}

/// A connection to a back end.
pub struct Channel {
    stream: UnixStream,
    /// Request an acknowledgement of every message; set once REPLY_ACK is negotiated.
    pub acknowledged: bool,
    /// Held during a request: a single-threaded front end does nothing else then.
    turn: Arc<Turn>,
}

impl Channel {
    /// Creates a channel over `stream`.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(HANG_AFTER))?;
        Ok(Self { stream, acknowledged: false, turn: Arc::default() })
    }

    /// Returns the socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Returns the turn. While it is held, the front end sends no request and waits for no reply.
    pub fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// Sends `bytes` unchanged, with `fds` attached to the first byte.
    pub fn send_raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        while sent < bytes.len() {
            let rest = [IoSlice::new(&bytes[sent..])];
            sent += sendmsg(&self.stream, &rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Sends a request that has a reply of its own, and returns the reply's payload.
    pub fn ask(&self, request: u32, payload: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.ask_with(request, payload, &[])
    }

    /// Like [`Channel::ask`], with descriptors.
    pub fn ask_with(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> anyhow::Result<Vec<u8>> {
        let _turn = self.turn.take();
        self.send_raw(&[&header(request, VERSION, payload.len()), payload].concat(), fds)
            .with_context(|| format!("request {request}"))?;
        self.reply_to(request)
    }

    /// Sends a request that has no reply, and waits for the acknowledgement if acknowledgements are negotiated.
    pub fn tell(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let _turn = self.turn.take();
        let flags = if self.acknowledged { VERSION | NEED_REPLY } else { VERSION };
        self.send_raw(&[&header(request, flags, payload.len()), payload].concat(), fds)
            .with_context(|| format!("request {request}"))?;
        if self.acknowledged {
            let reply = self.reply_to(request)?;
            ensure!(reply.len() == 8, "request {request} was acknowledged with {} bytes", reply.len());
            ensure!(reply == [0; 8], "request {request} was refused: {reply:?}");
        }
        Ok(())
    }

    /// Receives the reply to `request`.
    pub fn reply_to(&self, request: u32) -> anyhow::Result<Vec<u8>> {
        let mut header = [0; HEADER_LEN];
        let what = || format!("reply to request {request}");
        (&self.stream).read_exact(&mut header).with_context(what)?;
        let field = |index: usize| u32::from_le_bytes(header[4 * index..][..4].try_into().expect("four bytes"));
        let (number, flags, size) = (field(0), field(1), field(2) as usize);
        ensure!(number == request && flags & REPLY != 0, "{}: got request {number}, flags {flags:#x}", what());
        ensure!(size <= REPLY_LEN_MAX, "{}: {size} bytes", what());
        let mut payload = vec![0; size];
        (&self.stream).read_exact(&mut payload).with_context(what)?;
        Ok(payload)
    }

    /// Like [`Channel::ask`], for a reply that is one number.
    pub fn ask_u64(&self, request: u32) -> anyhow::Result<u64> {
        match <[u8; 8]>::try_from(self.ask(request, &[])?) {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(bytes) => bail!("reply to request {request} has {} bytes", bytes.len()),
        }
    }

    /// Waits until the peer has closed the connection, ignoring what it sends before that.
    pub fn wait_for_close(&self) -> anyhow::Result<()> {
        let mut rest = [0; 256];
        loop {
            match (&self.stream).read(&mut rest) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error).context("the peer does not close the connection"),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
