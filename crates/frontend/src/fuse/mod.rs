//! A FUSE client: one method for each operation, over any transport for requests and replies.
//!
//! [`Session`] checks the properties common to all replies. The operations are in [`names`], [`files`],
//! [`directories`], [`mappings`] and [`attributes`]. [`Exchange`] is implemented by a virtqueue.

mod attributes;
mod directories;
mod files;
mod mappings;
mod names;

use std::fmt;

use rustix::io::Errno;
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    limits::DATA_LEN_MAX,
    ops::init::{InitFlags, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

pub use directories::Entry;

use super::queue::{Completion, Queue};

/// Carries a request to a server, and its reply back.
pub trait Exchange {
    /// Sends `readable` with room for a reply of `room` bytes.
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion>;
}

impl Exchange for Queue {
    /// Uses a separate buffer for the reply's header, as Linux does.
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion> {
        let header_room = room.min(size_of::<OutHeader>());
        let rooms: Vec<usize> = [header_room, room - header_room].into_iter().filter(|&room| room > 0).collect();
        match self.submit(readable, &rooms) {
            Some(token) => self.wait(token),
            None => anyhow::bail!("the ring is full"),
        }
    }
}

/// Why an operation failed.
#[derive(Debug)]
pub enum Failure {
    /// The server replied with an error.
    Errno(Errno),
    /// The reply, or its transport, violates the protocol.
    Broken(anyhow::Error),
}

/// The result of an operation.
pub type Answer<T> = Result<T, Failure>;

/// Requests on behalf of one caller.
pub struct Session<E> {
    /// The transport of the requests.
    pub exchange: E,
    /// The caller's uid.
    pub uid: u32,
    /// The caller's gid.
    pub gid: u32,
    /// The caller's pid.
    pub pid: u32,
    /// The last request's identifier. Bit 0 is always clear: Linux sets it in interrupts.
    unique: u64,
}

impl<E: Exchange> Session<E> {
    /// Creates a session of a root caller, without sending INIT.
    pub fn new(exchange: E) -> Self {
        Self { exchange, uid: 0, gid: 0, pid: 1, unique: 0 }
    }

    /// Creates a session of a root caller and sends INIT, offering every feature.
    pub fn begin(exchange: E) -> Answer<Self> {
        let mut session = Self::new(exchange);
        session.init(InitFlags::all())?;
        Ok(session)
    }

    /// Sends INIT with `flags`.
    pub fn init(&mut self, flags: InitFlags) -> Answer<InitOut> {
        let mut arg = InitIn::new_zeroed();
        arg.major = KERNEL_VERSION.into();
        arg.minor = KERNEL_MINOR_VERSION.into();
        arg.max_readahead = DATA_LEN_MAX.into();
        arg.flags = (flags.bits() as u32).into();
        arg.flags2 = ((flags.bits() >> 32) as u32).into();
        self.ask(Opcode::Init, 0, &[arg.as_bytes()])
    }

    /// Sends DESTROY.
    pub fn destroy(&mut self) -> Answer<()> {
        self.ask_nothing(Opcode::Destroy, 0, &[])
    }

    /// Returns the header, with a new identifier, of a request with `body_len` bytes after it.
    pub fn header(&mut self, opcode: u32, nodeid: u64, body_len: usize) -> InHeader {
        self.unique += 2;
        InHeader {
            len: ((size_of::<InHeader>() + body_len) as u32).into(),
            opcode: opcode.into(),
            unique: self.unique.into(),
            nodeid: nodeid.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            pid: self.pid.into(),
            total_extlen: 0.into(),
            padding: 0.into(),
        }
    }

    /// Sends a request with room for `room` bytes of payload, and returns the reply's payload.
    pub fn request(&mut self, opcode: u32, nodeid: u64, body: &[&[u8]], room: usize) -> Answer<Vec<u8>> {
        let header = self.header(opcode, nodeid, body.iter().map(|part| part.len()).sum());
        let readable: Vec<&[u8]> = std::iter::once(header.as_bytes()).chain(body.iter().copied()).collect();
        let completion = self.exchange.exchange(&readable, size_of::<OutHeader>() + room).map_err(Failure::Broken)?;
        check_reply(&completion, header.unique.get())
    }

    /// Sends a request that has no reply.
    pub fn tell(&mut self, opcode: Opcode, nodeid: u64, body: &[&[u8]]) -> Answer<()> {
        let header = self.header(opcode as u32, nodeid, body.iter().map(|part| part.len()).sum());
        let readable: Vec<&[u8]> = std::iter::once(header.as_bytes()).chain(body.iter().copied()).collect();
        let completion = self.exchange.exchange(&readable, 0).map_err(Failure::Broken)?;
        if completion.used_len == 0 { Ok(()) } else { Err(broken(format!("{opcode:?} was answered"))) }
    }

    /// Sends a request whose reply is one structure.
    fn ask<T: FromBytes + KnownLayout + Immutable>(
        &mut self,
        opcode: Opcode,
        nodeid: u64,
        body: &[&[u8]],
    ) -> Answer<T> {
        let payload = self.request(opcode as u32, nodeid, body, size_of::<T>())?;
        T::read_from_bytes(&payload).map_err(|_| broken(format!("{opcode:?}: {} bytes of payload", payload.len())))
    }

    /// Sends a request whose reply is only a header.
    fn ask_nothing(&mut self, opcode: Opcode, nodeid: u64, body: &[&[u8]]) -> Answer<()> {
        let payload = self.request(opcode as u32, nodeid, body, 0)?;
        if payload.is_empty() { Ok(()) } else { Err(broken(format!("{opcode:?}: {} bytes of payload", payload.len()))) }
    }
}

/// Checks the properties common to all replies, and returns the payload.
pub fn check_reply(completion: &Completion, unique: u64) -> Answer<Vec<u8>> {
    let used_len = completion.used_len as usize;
    let Some(reply) = completion.writable.get(..used_len) else {
        return Err(broken(format!("{used_len} bytes used of {}", completion.writable.len())));
    };
    let Ok((header, payload)) = OutHeader::read_from_prefix(reply) else {
        return Err(broken(format!("a reply of {used_len} bytes")));
    };
    if header.len.get() as usize != used_len || header.unique.get() != unique {
        return Err(broken(format!("reply of {used_len} bytes to request {unique}: {header:?}")));
    }
    match header.error.get() {
        0 => Ok(payload.to_vec()),
        error @ -4095..=-1 if payload.is_empty() => Err(Failure::Errno(Errno::from_raw_os_error(-error))),
        error => Err(broken(format!("error {error} with {} bytes of payload", payload.len()))),
    }
}

/// Returns a failure of the peer, as opposed to the operation.
pub(super) fn broken(what: impl fmt::Display) -> Failure {
    Failure::Broken(anyhow::anyhow!("{what}"))
}

/// Returns `name` with a terminating NUL.
fn with_nul(name: &[u8]) -> Vec<u8> {
    [name, b"\0"].concat()
}

impl Failure {
    /// Returns the errno that the server replied with, if it did.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Errno(errno) => Some(*errno),
            Self::Broken(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::Broken(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Failure {}
