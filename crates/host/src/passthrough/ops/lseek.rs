//! LSEEK.

use rustix::fs::SeekFrom;
use transom_wire::{Handle, ops::lseek::LseekIn};

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    /// Data, holes and the end of the file; a position is the guest's affair.
    pub(in crate::passthrough) fn do_lseek(&self, arg: &LseekIn) -> Result<u64, Errno> {
        let file = self.handles.file(Handle::from(arg.fh))?;
        let offset = i64::try_from(arg.offset.get()).map_err(|_| Errno::NXIO)?;
        let position = match arg.whence.get().cast_signed() {
            libc::SEEK_DATA => SeekFrom::Data(offset.cast_unsigned()),
            libc::SEEK_HOLE => SeekFrom::Hole(offset.cast_unsigned()),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(&file.fd, position)
    }
}
