//! What of a request are the kernel's numbers, and what the daemon gets in their place.
//!
//! Source: linux/include/uapi/linux/fuse.h; the structures are those of `transom_wire::ops`.

use std::mem::offset_of;

use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    header::InHeader,
    ops::{
        copy_file_range::CopyFileRangeIn,
        getattr::{GETATTR_FH, GetattrIn},
        link::LinkIn,
        rename::{Rename2In, RenameIn},
        setattr::{SetattrIn, SetattrValid},
    },
};
use zerocopy::FromBytes as _;

use super::{
    Tables,
    handles::{Known, Opened},
    inodes::Place,
};

/// Bytes before the arguments.
const HEAD: usize = size_of::<InHeader>();
/// Of most operations on open files the handle comes first.
const FIRST: usize = 0;

/// A request of the kernel, in memory of our own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'m> {
    pub(super) header: InHeader,
    pub(super) opcode: Option<Opcode>,
    pub(super) args: &'m [u8],
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes to the daemon.
    Send,
    /// It is answered here: with nothing, or with an error.
    Answer(Result<(), Errno>),
}

impl<'m> Request<'m> {
    /// Nothing for bytes that are no request.
    pub(super) fn new(message: &'m [u8]) -> Option<Self> {
        let (header, args) = InHeader::read_from_prefix(message).ok()?;
        Some(Self { header, opcode: Opcode::from_u32(header.opcode.get()), args })
    }

    pub(super) fn nodeid(&self) -> NodeId {
        self.header.nodeid.into()
    }

    /// The number at an offset of the arguments; 0 behind their end, which is nobody's number.
    pub(super) fn long(&self, offset: usize) -> u64 {
        self.args.get(offset..offset + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub(super) fn word(&self, offset: usize) -> u32 {
        self.args.get(offset..offset + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(self.long(FIRST))
    }

    /// The name that begins at an offset of the arguments, in the directory that the request is about.
    pub(super) fn place(&self, offset: usize) -> Option<Place> {
        let name = name_at(self.args, offset)?;
        (name != b"." && name != b"..").then(|| Place { parent: self.nodeid(), name: name.into() })
    }

    /// From where and to where, of a request that renames.
    pub(super) fn rename(&self) -> Option<(Place, Place)> {
        let offset = match self.opcode {
            Some(Opcode::Rename) => size_of::<RenameIn>(),
            Some(Opcode::Rename2) => size_of::<Rename2In>(),
            _ => return None,
        };
        let from = self.place(offset)?;
        let name = name_at(self.args, offset + from.name.len() + 1)?;
        let parent = NodeId(self.long(offset_of!(Rename2In, newdir)));
        Some((from, Place { parent, name: name.into() }))
    }

    /// Of an open, how and by whom; `nodeid` is what was opened.
    pub(super) fn opened(&self, nodeid: NodeId) -> Opened {
        Opened {
            nodeid,
            flags: self.word(0),
            is_dir: self.opcode == Some(Opcode::Opendir),
            uid: self.header.uid.get(),
            gid: self.header.gid.get(),
        }
    }
}

fn name_at(args: &[u8], offset: usize) -> Option<&[u8]> {
    let bytes = args.get(offset..)?;
    bytes.split(|&byte| byte == 0).next().filter(|name| !name.is_empty() && name.len() < bytes.len())
}

impl Tables {
    /// Puts the daemon's numbers into `message` in place of the kernel's.
    pub(super) fn renumber(&mut self, message: &mut [u8]) -> Verdict {
        match self.try_renumber(message) {
            Ok(verdict) => verdict,
            Err(errno) => Verdict::Answer(Err(errno)),
        }
    }

    fn try_renumber(&mut self, message: &mut [u8]) -> Result<Verdict, Errno> {
        let request = Request::new(message).ok_or(Errno::INVAL)?;
        let (nodeid, opcode) = (request.nodeid(), request.opcode);
        match opcode {
            Some(Opcode::Release | Opcode::Releasedir) => {
                // What the daemon does not have is closed already.
                let Ok(Known { handle, node }) = self.handles.released(request.handle()) else {
                    return Ok(Verdict::Answer(Ok(())));
                };
                put(message, HEAD + FIRST, handle.0);
                put(message, offset_of!(InHeader, nodeid), node.0);
                return Ok(Verdict::Send);
            }
            // It may hold numbers, and nobody knows where.
            None => return Err(Errno::NOSYS),
            // The time of birth tells files apart, and only the daemon's that is started for this is sure to know it: see
            // `Options::daemon_args`. The kernel asks as if it had no such daemon.
            Some(Opcode::Statx) => return Err(Errno::NOSYS),
            _ => {}
        }
        for &offset in nodeids_in(opcode) {
            let request = Request::new(message).ok_or(Errno::INVAL)?;
            let daemon = self.inodes.daemon_of(NodeId(request.long(offset)))?;
            put(message, HEAD + offset, daemon.0);
        }
        for &offset in handles_in(opcode, message) {
            let request = Request::new(message).ok_or(Errno::INVAL)?;
            let known = self.handles.known(Handle(request.long(offset)));
            match (known, opcode) {
                (Ok(known), _) => put(message, HEAD + offset, known.handle.0),
                // The inode is enough for these.
                (Err(_), Some(Opcode::Getattr)) => clear_bits(message, HEAD, GETATTR_FH),
                // There is nothing to write out, and close(2) is not to fail for that alone.
                (Err(Errno::STALE), Some(Opcode::Flush)) => return Ok(Verdict::Answer(Ok(()))),
                (Err(errno), _) => return Err(errno),
            }
        }
        if nodeid.0 != 0 {
            put(message, offset_of!(InHeader, nodeid), self.inodes.daemon_of(nodeid)?.0);
        }
        Ok(Verdict::Send)
    }
}

/// Where in the arguments numbers of inodes are.
fn nodeids_in(opcode: Option<Opcode>) -> &'static [usize] {
    const NEW_DIR: usize = offset_of!(RenameIn, newdir);
    const _: () = assert!(NEW_DIR == offset_of!(Rename2In, newdir));
    match opcode {
        Some(Opcode::Rename | Opcode::Rename2) => &[NEW_DIR],
        Some(Opcode::Link) => &[offset_of!(LinkIn, oldnodeid)],
        Some(Opcode::CopyFileRange | Opcode::CopyFileRange64) => &[offset_of!(CopyFileRangeIn, nodeid_out)],
        _ => &[],
    }
}

/// Where in the arguments handles are.
fn handles_in(opcode: Option<Opcode>, message: &[u8]) -> &'static [usize] {
    let flags = || Request::new(message).map_or(0, |request| request.word(0));
    match opcode {
        Some(
            Opcode::Read
            | Opcode::Readdir
            | Opcode::Readdirplus
            | Opcode::Write
            | Opcode::Flush
            | Opcode::Fsync
            | Opcode::Fsyncdir
            | Opcode::Getlk
            | Opcode::Setlk
            | Opcode::Setlkw
            | Opcode::Fallocate
            | Opcode::Lseek
            | Opcode::Ioctl
            | Opcode::Poll,
        ) => &[FIRST],
        Some(Opcode::CopyFileRange | Opcode::CopyFileRange64) => {
            &[offset_of!(CopyFileRangeIn, fh_in), offset_of!(CopyFileRangeIn, fh_out)]
        }
        Some(Opcode::Getattr) if flags() & GETATTR_FH != 0 => &[offset_of!(GetattrIn, fh)],
        Some(Opcode::Setattr) if flags() & SetattrValid::FH.bits() != 0 => &[offset_of!(SetattrIn, fh)],
        _ => &[],
    }
}

fn put(message: &mut [u8], offset: usize, number: u64) {
    if let Some(bytes) = message.get_mut(offset..offset + 8) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
}

fn clear_bits(message: &mut [u8], offset: usize, bits: u32) {
    if let Some(bytes) = message.get_mut(offset..offset + 4) {
        let word = u32::from_le_bytes(bytes.try_into().unwrap_or_default()) & !bits;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}
