//! WRITE.

use std::{os::fd::BorrowedFd, sync::atomic::Ordering::Relaxed};

use rustix::{fs::OFlags, io::ReadWriteFlags};
use transom_wire::{
    Handle,
    operation::Write,
    ops::write::{WriteFlags, WriteOut},
};

use crate::{
    Errno,
    passthrough::{Passthrough, handles::OpenFile},
    server::{BlockingMode, Call, GuestSlice, Serve, total_len},
    sysfd::vectored,
};

impl Serve<Write> for Passthrough {
    fn serve(&self, call: Call<'_, Write>) -> Result<WriteOut, Errno> {
        let (arg, data) = (&call.arg, call.rest);
        let file = self.handles.file(Handle::from(arg.fh))?;
        let write_flags = WriteFlags::from_bits_retain(arg.write_flags.get());
        // Pages of a cache have a fixed position in the file; O_APPEND applied to the write that filled them.
        let is_cached = write_flags.contains(WriteFlags::CACHE);
        let appends = arg.flags.get() & OFlags::APPEND.bits() != 0 && !is_cached;
        let flags = if appends { ReadWriteFlags::APPEND } else { ReadWriteFlags::empty() };
        if appends && let Some(written) = self.has_appended(&call.ctx, &file.fd, data)? {
            return Ok(WriteOut::new(written));
        }
        self.drop_capabilities(&file.fd)?;
        let kills_set_id = write_flags.contains(WriteFlags::KILL_SUIDGID);
        let _guard = if kills_set_id { self.kill_set_id(&file.fd)? } else { None };
        let fd = if is_cached { self.not_direct(&file) } else { self.descriptor(&file, arg.flags.get()) };
        let write = || vectored::write_full(fd, data, arg.offset.get(), flags);
        let written = match call.ctx.blocking {
            BlockingMode::MayBlock => write()?,
            BlockingMode::MustNotBlock => match write_at_once(&file, fd, data, arg.offset.get(), flags)? {
                Some(written) => written,
                None => self.write_gate.pass_copy(total_len(data), write).unwrap_or(Err(Errno::AGAIN))?,
            },
        };
        self.journal_step("done");
        // A request has at most DATA_LEN_MAX bytes of data.
        Ok(WriteOut::new(written as u32))
    }
}

/// Writes without waiting. Returns `None`, with nothing written, if the file system does not know whether it would
/// wait.
fn write_at_once(
    file: &OpenFile,
    fd: BorrowedFd<'_>,
    data: &[GuestSlice<'_>],
    offset_bytes: u64,
    flags: ReadWriteFlags,
) -> Result<Option<usize>, Errno> {
    if file.waits_to_write.load(Relaxed) {
        return Ok(None);
    }
    let wanted = total_len(data);
    let done = match vectored::write(fd, data, offset_bytes, flags | ReadWriteFlags::NOWAIT) {
        // Linux returns EINVAL for files on DAX storage. If it refers to the offset instead, the blocking write
        // returns it again.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => {
            file.waits_to_write.store(true, Relaxed);
            return Ok(None);
        }
        outcome => outcome?,
    };
    if done == 0 || done == wanted || flags.contains(ReadWriteFlags::APPEND) {
        return Ok(Some(done));
    }
    // The blocking write repeats the bytes written so far, and writes the rest.
    Ok(None)
}
