//! COPY_FILE_RANGE and COPY_FILE_RANGE_64.

use transom_wire::{
    Handle,
    operation::{CopyFileRange, CopyFileRange64},
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        init::InitFlags,
        write::WriteOut,
    },
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<CopyFileRange> for Passthrough {
    fn serve(&self, call: Call<'_, CopyFileRange>) -> Result<WriteOut, Errno> {
        Ok(WriteOut::new(self.copy(&call.arg.within_32_bits())? as u32))
    }
}

impl Serve<CopyFileRange64> for Passthrough {
    fn serve(&self, call: Call<'_, CopyFileRange64>) -> Result<CopyFileRangeOut, Errno> {
        Ok(CopyFileRangeOut { bytes_copied: self.copy(&call.arg)?.into() })
    }
}

impl Passthrough {
    /// Copies and returns the number of bytes. Clears set-id bits of the target as FALLOCATE does.
    ///
    /// # Errors
    ///
    /// EINVAL if any flag is set, since none is defined.
    fn copy(&self, arg: &CopyFileRangeIn) -> Result<u64, Errno> {
        if arg.flags.get() != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.handles.file(Handle::from(arg.fh_in))?, self.handles.file(Handle::from(arg.fh_out))?);
        let (mut off_in, mut off_out) = (arg.off_in.get(), arg.off_out.get());
        let len = usize::try_from(arg.len.get()).unwrap_or(usize::MAX);
        let _guard = if self.has(InitFlags::HANDLE_KILLPRIV_V2) { self.kill_set_id(&to.fd)? } else { None };
        self.drop_capabilities(&to.fd)?;
        let copied = rustix::fs::copy_file_range(&from.fd, Some(&mut off_in), &to.fd, Some(&mut off_out), len)?;
        Ok(copied as u64)
    }
}
