//! READ.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering::Relaxed};

use rustix::io::ReadWriteFlags;
use transom_wire::Handle;

use crate::{
    Errno,
    operation::Read,
    passthrough::Passthrough,
    server::{BlockingMode, Call, GuestSlice, Serve, total_len},
    sysfd::vectored,
};

impl Serve<Read> for Passthrough {
    fn serve(&self, call: Call<'_, Read>) -> Result<usize, Errno> {
        let (arg, data) = (&call.arg, call.out);
        let file = self.handles.file(Handle::from(arg.fh))?;
        let fd = self.descriptor(&file, arg.flags.get());
        let read = || vectored::read_full(fd, data, arg.offset.get(), ReadWriteFlags::empty());
        if call.ctx.blocking == BlockingMode::MayBlock {
            return read();
        }
        if !file.waits_to_read.load(Relaxed) {
            match read_cached(fd, arg.offset.get(), data) {
                // The file system does not know whether it would wait. tmpfs never does, FUSE often.
                Err(Errno::OPNOTSUPP) => file.waits_to_read.store(true, Relaxed),
                // The end of a file that is open with O_DIRECT cannot be probed. If the request itself is invalid, the
                // blocking read returns EINVAL again.
                Err(Errno::INVAL) => return Err(Errno::AGAIN),
                outcome => return outcome,
            }
        }
        self.read_gate.pass_copy(total_len(data), read).unwrap_or(Err(Errno::AGAIN))
    }
}

/// Reads what the host has in memory. Errors: EAGAIN if that is not everything.
fn read_cached(fd: BorrowedFd<'_>, offset_bytes: u64, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
    let wanted = total_len(data);
    let done = vectored::read(fd, data, offset_bytes, ReadWriteFlags::NOWAIT)?;
    if done == wanted || done == 0 {
        return Ok(done);
    }
    // A short read ends either at the end of the file or where the cached data ends. At the end of the file nothing
    // follows.
    let Some(last) = data.iter().rev().find(|slice| !slice.is_empty()) else { return Ok(done) };
    let next_bytes = offset_bytes.checked_add(done as u64).ok_or(Errno::INVAL)?;
    // The last requested byte has not been filled yet and may be overwritten.
    let probe = last.offset(last.len() - 1).map_err(|_| Errno::FAULT)?;
    match vectored::read(fd, &[probe], next_bytes, ReadWriteFlags::NOWAIT)? {
        0 => Ok(done),
        _ => Err(Errno::AGAIN),
    }
}
