//! Bytes between the channels and the command, each direction in a thread of its own.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::event::{PollFd, PollFlags, poll};

/// A port of virtio-serial takes 32 KiB at once; a pipe holds 64 KiB.
const CHUNK_LEN: usize = 64 << 10;

/// Copies the command's output to a channel until its end, and returns how many bytes went out.
///
/// `is_unwanted` is set when nobody reads the other end any more: the pipe is closed then, so that the command
/// learns of it as it would on the host.
pub(super) fn output(mut from: File, mut to: File, is_unwanted: Arc<AtomicBool>) -> JoinHandle<io::Result<u64>> {
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_LEN];
        let mut bytes = 0;
        loop {
            let len = match from.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The last process has left the terminal.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(bytes),
                Err(error) => return Err(error),
            };
            if is_unwanted.load(Ordering::Relaxed) {
                return Ok(bytes);
            }
            to.write_all(&chunk[..len])?;
            bytes += len as u64;
        }
    })
}

/// Copies a channel to the command's input.
///
/// `end` becomes readable with eight bytes, the number of those that belong to the input; after the last of them
/// `at_end` is written, and the input closed. Runs until then; a command that reads no more loses the rest.
pub(super) fn input(mut from: File, to: File, mut end: io::PipeReader, at_end: &'static [u8]) {
    thread::spawn(move || {
        let mut to = Some(to);
        let mut chunk = vec![0; CHUNK_LEN];
        let (mut copied, mut total) = (0_u64, None);
        while total.is_none_or(|total| copied < total) {
            let Ok((has_bytes, has_end)) = ready(&from, end.as_fd(), total.is_none()) else { return };
            if has_end {
                let mut number = [0; 8];
                if end.read_exact(&mut number).is_err() {
                    return;
                }
                total = Some(u64::from_ne_bytes(number));
            }
            if has_bytes {
                let Ok(len) = from.read(&mut chunk) else { return };
                copied += len as u64;
                // A command that closed its input gets nothing more; the channel is emptied all the same.
                if to.as_mut().is_some_and(|to| to.write_all(&chunk[..len]).is_err()) {
                    to = None;
                }
            }
        }
        if let Some(mut to) = to {
            let _ = to.write_all(at_end);
        }
    });
}

/// Waits until there is something to read; says where.
fn ready(from: &File, end: impl AsFd, is_end_awaited: bool) -> io::Result<(bool, bool)> {
    let mut fds = vec![PollFd::new(from, PollFlags::IN)];
    if is_end_awaited {
        fds.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
    }
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let has = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
    Ok((has(0), has(1)))
}

/// The same descriptor as a file.
pub(super) fn file(fd: impl Into<OwnedFd>) -> File {
    File::from(fd.into())
}
