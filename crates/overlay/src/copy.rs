//! Content of regular files: compared, and copied with its holes.

use std::{
    fs::File,
    io::{self, Read},
};

use rustix::{
    fs::{SeekFrom, copy_file_range, ftruncate, ioctl_ficlone, seek},
    io::Errno,
};

/// How much is compared at a time.
const CHUNK_LEN: usize = 256 << 10;

/// Returns whether two files have the same content.
pub(crate) fn are_equal(mut a: File, mut b: File) -> io::Result<bool> {
    let mut buffers = [vec![0; CHUNK_LEN], vec![0; CHUNK_LEN]];
    loop {
        let [of_a, of_b] = &mut buffers;
        let (len_a, len_b) = (fill(&mut a, of_a)?, fill(&mut b, of_b)?);
        if of_a[..len_a] != of_b[..len_b] {
            return Ok(false);
        }
        if len_a == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Makes the empty file `to` a copy of `from`. Holes stay holes; blocks are shared where the file system can.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<()> {
    if ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let len = from.metadata()?.len();
    ftruncate(to, len)?;
    let mut at = 0;
    while at < len {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // A hole up to the end.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        at = seek(from, SeekFrom::Hole(data))?;
        copy_range(from, to, data, at)?;
    }
    Ok(())
}

fn copy_range(from: &File, to: &File, begin: u64, end: u64) -> io::Result<()> {
    let (mut source, mut target) = (begin, begin);
    while source < end {
        let len = usize::try_from(end - source).unwrap_or(usize::MAX).min(1 << 30);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), len) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                return copy_by_hand(from, to, source, end);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, begin: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; CHUNK_LEN];
    let mut at = begin;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let len = from.read_at(&mut buffer[..wanted], at)?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        to.write_all_at(&buffer[..len], at)?;
        at += len as u64;
    }
    Ok(())
}
