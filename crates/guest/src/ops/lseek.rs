//! LSEEK.

use transom_wire::{
    Handle, NodeId,
    linux::{SEEK_DATA, SEEK_HOLE},
    operation::Lseek,
    ops::lseek::{LseekIn, LseekOut},
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Returns where the next data or hole begins, in bytes, at most `i64::MAX`. `whence` is SEEK_DATA (3) or SEEK_HOLE
    /// (4).
    ///
    /// If the server does not know the operation, the whole file counts as data, up to the size that GETATTR returns.
    /// Errors: ENXIO beyond the end, and then EINVAL for another `whence`.
    pub fn lseek(&self, caller: &Caller<'_>, node: NodeId, fh: Handle, offset: u64, whence: u32) -> Result<u64, Errno> {
        let arg = LseekIn { fh: fh.into(), offset: offset.into(), whence: whence.into(), padding: 0.into() };
        let mut head = Plain::<Lseek>::new(node, caller, &arg);
        let Some(LseekOut { offset: found }) = self.ask_if_known(caller, &mut head)? else {
            let size = self.getattr(caller, node, Some(fh))?.attr.size.get();
            return seek_in_data(size, offset, whence);
        };
        if (offset..=i64::MAX as u64).contains(&found.get()) { Ok(found.get()) } else { Err(self.impossible_eio()) }
    }
}

fn seek_in_data(size: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
    match whence {
        SEEK_DATA | SEEK_HOLE if offset >= size => Err(Errno::NXIO),
        SEEK_DATA => Ok(offset),
        SEEK_HOLE => Ok(size),
        _ => Err(Errno::INVAL),
    }
}
