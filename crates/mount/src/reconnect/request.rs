//! What of a request are the kernel's numbers, and what the daemon gets in their place.
//!
//! Source: linux/include/uapi/linux/fuse.h; the structures are those of `transom_wire::ops`.

use std::mem::offset_of;

use rustix::io::Errno;
use transom_wire::{Handle, NodeId, Opcode, header::InHeader, operation::Effect, ops::getattr::GETATTR_FH};
use zerocopy::FromBytes as _;

use super::{
    Tables,
    handles::{OpenAtDaemon, Opened},
    inodes::DirEntryName,
};

/// Bytes before the arguments.
const HEAD: usize = size_of::<InHeader>();

/// A request of the kernel, in memory of our own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'m> {
    pub(super) header: InHeader,
    pub(super) opcode: Option<Opcode>,
    pub(super) args: &'m [u8],
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenumberVerdict {
    /// It goes to the daemon.
    Send,
    /// It is answered here: with nothing, or with an error.
    Answer(Result<(), Errno>),
}

impl<'m> Request<'m> {
    /// Returns the request in `message`, or `None` if it has no header.
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

    /// What the operation does to names and open files: nothing that is known of one that the table does not have.
    pub(super) fn effect(&self) -> Effect {
        self.opcode.map_or(Effect::None, |opcode| opcode.row().effect)
    }

    /// Whether it may be sent again if nobody knows whether it was done.
    pub(super) fn is_repeatable(&self) -> bool {
        self.opcode.is_some_and(|opcode| opcode.row().repeats.holds(self.args))
    }

    /// Returns the first open file that the arguments name, or 0, which is no file's handle.
    pub(super) fn handle(&self) -> Handle {
        let row = self.opcode.map(Opcode::row);
        Handle(row.and_then(|row| row.handles.first()).map_or(0, |handle| self.long(handle.at)))
    }

    /// The name that follows the arguments, in the directory that the request is about.
    pub(super) fn entry_name(&self) -> Option<DirEntryName> {
        let name = name_at(self.args, self.opcode?.row().args_len)?;
        (name != b"." && name != b"..").then(|| DirEntryName { parent: self.nodeid(), name: name.into() })
    }

    /// From where and to where, of a request that renames.
    pub(super) fn rename(&self) -> Option<(DirEntryName, DirEntryName)> {
        let row = self.opcode?.row();
        let &[new_parent_at] = row.nodeids else { return None };
        if row.effect != Effect::Renames {
            return None;
        }
        let from = self.entry_name()?;
        let name = name_at(self.args, row.args_len + from.name.len() + 1)?;
        let parent = NodeId(self.long(new_parent_at));
        Some((from, DirEntryName { parent, name: name.into() }))
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
    pub(super) fn renumber(&mut self, message: &mut [u8]) -> RenumberVerdict {
        match self.try_renumber(message) {
            Ok(verdict) => verdict,
            Err(errno) => RenumberVerdict::Answer(Err(errno)),
        }
    }

    fn try_renumber(&mut self, message: &mut [u8]) -> Result<RenumberVerdict, Errno> {
        let request = Request::new(message).ok_or(Errno::INVAL)?;
        // It may hold numbers, and nobody knows where.
        let opcode = request.opcode.ok_or(Errno::NOSYS)?;
        // The time of birth tells files apart, and only a daemon that this mount has started is sure to know it: see
        // `Options::daemon_args`. The kernel asks as if it had no such daemon.
        if opcode == Opcode::Statx {
            return Err(Errno::NOSYS);
        }
        let (nodeid, row) = (request.nodeid(), opcode.row());
        if row.effect == Effect::Closes {
            return Ok(self.renumber_close(message));
        }
        for &offset in row.nodeids {
            let request = Request::new(message).ok_or(Errno::INVAL)?;
            let daemon = self.inodes.daemon_of(NodeId(request.long(offset)))?;
            put(message, HEAD + offset, daemon.0);
        }
        for handle in row.handles {
            let request = Request::new(message).ok_or(Errno::INVAL)?;
            if !handle.when.holds(request.args) {
                continue;
            }
            match self.handles.known(Handle(request.long(handle.at))) {
                Ok(known) => put(message, HEAD + handle.at, known.handle.0),
                // The inode is enough for it.
                Err(_) if opcode == Opcode::Getattr => clear_bits(message, HEAD, GETATTR_FH),
                // There is nothing to write out, and close(2) is not to fail for that alone.
                Err(Errno::STALE) if row.effect == Effect::Flushes => return Ok(RenumberVerdict::Answer(Ok(()))),
                Err(errno) => return Err(errno),
            }
        }
        if nodeid.0 != 0 {
            put(message, offset_of!(InHeader, nodeid), self.inodes.daemon_of(nodeid)?.0);
        }
        Ok(RenumberVerdict::Send)
    }

    /// A close ends a handle here. What the daemon does not have is closed already.
    fn renumber_close(&mut self, message: &mut [u8]) -> RenumberVerdict {
        let request = Request::new(message).map(|request| (request.opcode.map(Opcode::row), request.handle()));
        let Some((Some(row), fh)) = request else { return RenumberVerdict::Answer(Err(Errno::INVAL)) };
        let Ok(OpenAtDaemon { handle, node }) = self.handles.released(fh) else {
            return RenumberVerdict::Answer(Ok(()));
        };
        for at in row.handles {
            put(message, HEAD + at.at, handle.0);
        }
        put(message, offset_of!(InHeader, nodeid), node.0);
        RenumberVerdict::Send
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
