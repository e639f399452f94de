//! COPY_FILE_RANGE and COPY_FILE_RANGE_64.

use transom_wire::{
    Handle, NodeId,
    operation::{CopyFileRange, CopyFileRange64},
    ops::copy_file_range::CopyFileRangeIn,
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Copies up to `len` bytes between open files on the server, each named by inode, handle and offset in bytes.
    /// Returns the number of bytes copied, 0 at the end of the source.
    ///
    /// Sends the 64-bit form if the server knows it. Errors: EOPNOTSUPP if it knows neither.
    pub fn copy_file_range(
        &self,
        caller: &Caller<'_>,
        from: (NodeId, Handle, u64),
        to: (NodeId, Handle, u64),
        len: u64,
        flags: u64,
    ) -> Result<u64, Errno> {
        let arg = CopyFileRangeIn {
            fh_in: from.1.into(),
            off_in: from.2.into(),
            nodeid_out: to.0.into(),
            fh_out: to.1.into(),
            off_out: to.2.into(),
            len: len.into(),
            flags: flags.into(),
        };
        let wide = self.ask_if_known(caller, &mut Plain::<CopyFileRange64>::new(from.0, caller, &arg))?;
        let (copied, limit) = match wide {
            Some(out) => (out.bytes_copied.get(), len),
            None => {
                let arg = arg.within_32_bits();
                let narrow = self.ask_if_known(caller, &mut Plain::<CopyFileRange>::new(from.0, caller, &arg))?;
                (narrow.ok_or(Errno::OPNOTSUPP)?.size.get().into(), arg.len.get())
            }
        };
        if copied <= limit { Ok(copied) } else { Err(self.impossible_eio()) }
    }
}
