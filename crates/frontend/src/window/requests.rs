//! Decodes a back end's requests and encodes the replies.

use std::{
    io::{self, IoSliceMut, Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::message::{HEADER_LEN, NEED_REPLY, REPLY, VERSION, header};

const SHARED_OBJECT_REMOVE: u32 = 7;
const SHMEM_MAP: u32 = 9;
const SHMEM_UNMAP: u32 = 10;
/// SHMEM_MAP flag: the guest may write.
const WRITABLE: u64 = 1;
/// The longest body of a request, in bytes.
const BODY_LEN_MAX: usize = 64;
/// The most descriptors accepted with a request; a valid one has one.
const FDS_MAX: usize = 4;

/// A request and whether it wants a reply.
pub(super) struct Request {
    pub(super) number: u32,
    pub(super) wants_reply: bool,
    pub(super) what: What,
}

/// The content of a request.
pub(super) enum What {
    Map(Map),
    Unmap {
        region: u8,
        offset: u64,
        len: u64,
    },
    /// A request about a shared object.
    Remove,
    /// A request that transomd never sends, or malformed.
    Other(String),
}

/// SHMEM_MAP.
pub(super) struct Map {
    pub(super) region: u8,
    pub(super) file: OwnedFd,
    pub(super) file_offset: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) is_writable: bool,
}

/// Receives the next request; `None` if the back end has closed the channel.
pub(super) fn receive(stream: &UnixStream) -> io::Result<Option<Request>> {
    let mut head = [0; HEADER_LEN];
    let mut fds = Vec::new();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let first = recvmsg(stream, &mut [IoSliceMut::new(&mut head)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if first == 0 {
        return Ok(None);
    }
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    let mut stream = stream;
    stream.read_exact(&mut head[first..])?;
    let field = |index: usize| u32::from_le_bytes(head[4 * index..][..4].try_into().expect("four bytes"));
    let (number, flags, size) = (field(0), field(1), field(2) as usize);
    if size > BODY_LEN_MAX || flags & 3 != VERSION || flags & REPLY != 0 {
        let message = format!("request {number} with flags {flags:#x} and {size} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut body = vec![0; size];
    stream.read_exact(&mut body)?;
    Ok(Some(Request { number, wants_reply: flags & NEED_REPLY != 0, what: parse(number, &body, fds) }))
}

fn parse(number: u32, body: &[u8], fds: Vec<OwnedFd>) -> What {
    let field = |index: usize| u64::from_le_bytes(body[8 * index..][..8].try_into().expect("eight bytes"));
    let (count, mut fds) = (fds.len(), fds.into_iter());
    match (number, body.len(), count, fds.next()) {
        (SHMEM_MAP, 40, 1, Some(file)) if field(4) & !WRITABLE == 0 => What::Map(Map {
            region: body[0],
            file,
            file_offset: field(1),
            offset: field(2),
            len: field(3),
            is_writable: field(4) & WRITABLE != 0,
        }),
        (SHMEM_UNMAP, 40, 0, None) => What::Unmap { region: body[0], offset: field(2), len: field(3) },
        (SHARED_OBJECT_REMOVE, 16, 0, None) => What::Remove,
        _ => What::Other(format!("request {number} with {} bytes and {count} descriptors: {body:02x?}", body.len())),
    }
}

/// Replies to `request`, if it wants a reply, with success or an error.
pub(super) fn reply(stream: &UnixStream, request: &Request, is_success: bool) -> io::Result<()> {
    if !request.wants_reply {
        return Ok(());
    }
    let answer = u64::from(!is_success).to_le_bytes();
    let mut stream = stream;
    stream.write_all(&[header(request.number, VERSION | REPLY, answer.len()), answer.to_vec()].concat())
}
