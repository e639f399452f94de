//! Answers the kernel's FUSE requests about the views. Never waits for anything else, because every process with a
//! view, including the daemon, may be blocked in one of these requests.

use std::{
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{FileType, OFlags},
    io::{Errno, read, writev},
    process::Pid,
};
use transom_wire::{
    NodeId, Opcode,
    attr::{Attr, AttrOut, EntryOut},
    header::{InHeader, OutHeader},
    ops::{
        open::{OpenFlags, OpenIn, OpenOut},
        statfs::StatfsOut,
    },
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::nodes::{Nodes, VIEW_SIZE};

/// Maximum data of a WRITE in bytes. Every WRITE is rejected.
pub(crate) const MAX_WRITE: u32 = 4096;

/// Validity of attributes, which never change, in seconds.
const FOREVER: u64 = u32::MAX as u64;

/// A buffer for a request. Linux requires at least 8 KiB, and space for a WRITE with its headers.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; 16384].into())
    }
}

/// A request.
pub(crate) struct Request<'a> {
    header: InHeader,
    pub(crate) arguments: &'a [u8],
}

impl Request<'_> {
    pub(crate) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_u32(self.header.opcode.get())
    }

    fn nodeid(&self) -> NodeId {
        self.header.nodeid.into()
    }
}

/// Answers requests until the file system ends. `opener` is the one thread that may open views.
pub(crate) fn serve(device: &OwnedFd, nodes: &Nodes, opener: Pid) -> Result<(), Errno> {
    let mut buffer = Buffer::new();
    while let Some(request) = next(device, &mut buffer)? {
        let is_openers = request.header.pid.get() == opener.as_raw_nonzero().get().cast_unsigned();
        match request.opcode() {
            Some(Opcode::Lookup) if is_openers => match looked_up(nodes, request.arguments) {
                Some(nodeid) => answer(device, &request, &entry(nodeid))?,
                None => refuse(device, &request, Errno::NOENT)?,
            },
            Some(Opcode::Getattr) => {
                let attr = attr(request.nodeid());
                answer(device, &request, &AttrOut { attr_valid: FOREVER.into(), attr, ..AttrOut::default() })?;
            }
            Some(Opcode::Open) if is_openers => match opened(nodes, &request) {
                Ok(open) => match reply(device, &request, 0, open.as_bytes()) {
                    // The opener was killed meanwhile, so there will be no RELEASE.
                    Err(Errno::NOENT) => nodes.release(request.nodeid()),
                    result => result?,
                },
                Err(errno) => refuse(device, &request, errno)?,
            },
            Some(Opcode::Release) => {
                nodes.release(request.nodeid());
                answer(device, &request, &())?;
            }
            Some(Opcode::Statfs) => answer(device, &request, &statfs())?,
            Some(Opcode::Destroy) => answer(device, &request, &())?,
            Some(opcode) if opcode.has_no_reply() => {}
            other => refuse(device, &request, refusal_errno(other))?,
        }
    }
    Ok(())
}

/// Waits for a request. Returns `None` once the file system has ended.
pub(crate) fn next<'a>(device: impl AsFd, buffer: &'a mut Buffer) -> Result<Option<Request<'a>>, Errno> {
    let len = loop {
        match read(&device, &mut *buffer.0) {
            Ok(len) => break len,
            // The request was interrupted.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    };
    let (header, arguments) = InHeader::read_from_prefix(&buffer.0[..len]).map_err(|_| Errno::PROTO)?;
    Ok(Some(Request { header, arguments }))
}

/// Replies with `body`. It is not an error if no one waits for the reply any more.
pub(crate) fn answer(
    device: impl AsFd,
    request: &Request<'_>,
    body: &(impl IntoBytes + Immutable),
) -> Result<(), Errno> {
    heard_or_not(reply(device, request, 0, body.as_bytes()))
}

/// Replies with an error. It is not an error if no one waits for the reply any more.
pub(crate) fn refuse(device: impl AsFd, request: &Request<'_>, errno: Errno) -> Result<(), Errno> {
    heard_or_not(reply(device, request, -errno.raw_os_error(), &[]))
}

fn heard_or_not(replied: Result<(), Errno>) -> Result<(), Errno> {
    if replied == Err(Errno::NOENT) { Ok(()) } else { replied }
}

fn reply(device: impl AsFd, request: &Request<'_>, error: i32, body: &[u8]) -> Result<(), Errno> {
    let header = OutHeader {
        len: ((size_of::<OutHeader>() + body.len()) as u32).into(),
        error: error.into(),
        unique: request.header.unique,
    };
    writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)]).map(drop)
}

/// Returns the node whose number is the name in a LOOKUP.
fn looked_up(nodes: &Nodes, arguments: &[u8]) -> Option<NodeId> {
    let name = str::from_utf8(arguments.split(|&byte| byte == 0).next()?).ok()?;
    let nodeid = NodeId(name.parse().ok()?);
    nodes.contains(nodeid).then_some(nodeid)
}

fn opened(nodes: &Nodes, request: &Request<'_>) -> Result<OpenOut, Errno> {
    let (open, _) = OpenIn::read_from_prefix(request.arguments).map_err(|_| Errno::PROTO)?;
    let flags = OFlags::from_bits_retain(open.flags.get());
    if flags & OFlags::RWMODE != OFlags::RDWR || flags.contains(OFlags::TRUNC) {
        return Err(Errno::PERM);
    }
    let backing_id = nodes.hold(request.nodeid()).ok_or(Errno::STALE)?;
    let open_flags = OpenFlags::PASSTHROUGH | OpenFlags::NOFLUSH;
    Ok(OpenOut { open_flags: open_flags.bits().into(), backing_id: backing_id.into(), ..OpenOut::default() })
}

fn entry(nodeid: NodeId) -> EntryOut {
    // Names are not cached, because each is used once.
    EntryOut { nodeid: nodeid.into(), attr_valid: FOREVER.into(), attr: attr(nodeid), ..EntryOut::default() }
}

fn attr(nodeid: NodeId) -> Attr {
    let (mode, size) = match nodeid {
        NodeId::ROOT => (FileType::Directory.as_raw_mode() | 0o700, 0),
        _ => (FileType::RegularFile.as_raw_mode() | 0o600, VIEW_SIZE),
    };
    Attr {
        ino: nodeid.into(),
        size: size.into(),
        mode: mode.into(),
        nlink: 1.into(),
        blksize: 4096.into(),
        ..Attr::default()
    }
}

fn statfs() -> StatfsOut {
    StatfsOut { bsize: 4096.into(), namelen: 255.into(), frsize: 4096.into(), ..StatfsOut::new_zeroed() }
}

/// Why requests are refused; operations that are not here are not known to this file system.
const REFUSALS: &[(Opcode, Errno)] = &[
    (Opcode::Lookup, Errno::NOENT),
    (Opcode::Open, Errno::PERM),
    (Opcode::Setattr, Errno::PERM),
    (Opcode::Read, Errno::PERM),
    (Opcode::Write, Errno::PERM),
    (Opcode::Fallocate, Errno::OPNOTSUPP),
    (Opcode::CopyFileRange, Errno::OPNOTSUPP),
    (Opcode::CopyFileRange64, Errno::OPNOTSUPP),
    // It must not appear to succeed; msync(2) of a mapping goes to the host's file.
    (Opcode::Fsync, Errno::INVAL),
];

fn refusal_errno(opcode: Option<Opcode>) -> Errno {
    let known = REFUSALS.iter().find(|(refused, _)| Some(*refused) == opcode);
    known.map_or(Errno::NOSYS, |(_, errno)| *errno)
}
