//! The guest's memory as a file, in memory or on a disk.

use std::{fs::File, io};

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek, sendfile};

/// Creates memory of `len` bytes, all zeros, that takes no space yet.
pub(crate) fn zeros(len: u64) -> io::Result<File> {
    let file = File::from(memfd_create("guest-memory", MemfdFlags::CLOEXEC)?);
    file.set_len(len)?;
    Ok(file)
}

/// Makes `to`, which has only zeros, a copy of `from`. Holes stay holes.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // The rest is a hole.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(data))?;
        copy_range(from, to, data, end)?;
        at = end;
    }
    Ok(())
}

/// Copies the bytes from `begin` to `end`.
fn copy_range(from: &File, to: &File, begin: u64, end: u64) -> io::Result<()> {
    seek(to, SeekFrom::Start(begin))?;
    let mut at = begin;
    while at < end {
        let rest = (end - at) as usize;
        let copied = sendfile(to, from, Some(&mut at), rest)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
