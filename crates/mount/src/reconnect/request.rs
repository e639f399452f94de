//! What of a request are the kernel's numbers, and what the daemon gets in their place.
//!
//! Source: linux/include/uapi/linux/fuse.h; the structures are those of `transom_wire::ops`.

use std::mem::offset_of;

use rustix::io::Errno;
use transom_wire::{Handle, NodeId, Opcode, header::InHeader, operation::Effect, ops::getattr::GETATTR_FH};

use super::{
    Tables,
    handles::{OpenAtDaemon, Opened},
};
use crate::request::Request;

/// Bytes before the arguments.
const HEAD: usize = size_of::<InHeader>();

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenumberVerdict {
    /// It goes to the daemon.
    Send,
    /// It is answered here: with nothing, or with an error.
    Answer(Result<(), Errno>),
}

impl Request<'_> {
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
