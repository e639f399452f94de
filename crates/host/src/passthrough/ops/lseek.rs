//! LSEEK.

use rustix::fs::SeekFrom;
use transom_wire::{Handle, operation::Lseek, ops::lseek::LseekOut};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Lseek> for Passthrough {
    /// Finds data, holes and the end of the file. The file position itself is kept by the guest.
    fn serve(&self, call: Call<'_, Lseek>) -> Result<LseekOut, Errno> {
        let arg = &call.arg;
        let file = self.handles.file(Handle::from(arg.fh))?;
        let offset = i64::try_from(arg.offset.get()).map_err(|_| Errno::NXIO)?;
        let position = match arg.whence.get().cast_signed() {
            libc::SEEK_DATA => SeekFrom::Data(offset.cast_unsigned()),
            libc::SEEK_HOLE => SeekFrom::Hole(offset.cast_unsigned()),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(Errno::INVAL),
        };
        let offset = rustix::fs::seek(&file.fd, position)?;
        Ok(LseekOut { offset: offset.into() })
    }
}
