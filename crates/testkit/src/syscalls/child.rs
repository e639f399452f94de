//! Children by fork, for what a thread cannot stand in for: to die of a signal, and to share a file offset.
//!
//! A child calls the kernel and nothing else, since other threads of the parent may have held any lock.
#![expect(unsafe_code, reason = "fork")]

use std::os::fd::{AsRawFd, BorrowedFd};

use super::raw::last_errno;
use crate::client::Result;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be started or waited for.
    Unknown,
}

/// A child reads one byte at an address that its parent has mapped.
pub(super) fn touch(address: *const u8) -> Ending {
    fork_and_wait(|| {
        // SAFETY: a single-byte read of an address within a live mapping; what it raises hits the child alone.
        let _ = unsafe { address.read_volatile() };
        0
    })
}

/// A child reads up to `len` (at most 64) bytes from the offset it shares with its parent; its status is the count.
pub fn read_inherited(file: BorrowedFd<'_>, len: usize) -> Ending {
    let number = file.as_raw_fd();
    let mut buf = [0u8; 64];
    let len = len.min(buf.len());
    // SAFETY: the buffer is on the child's own stack and holds `len` bytes.
    fork_and_wait(move || unsafe { libc::read(number, buf.as_mut_ptr().cast(), len) as i32 })
}

fn fork_and_wait(body: impl FnOnce() -> i32) -> Ending {
    // SAFETY: the child runs `body`, which makes plain memory accesses and system calls only, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = body();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(status) };
    }
    if child < 0 {
        return Ending::Unknown;
    }
    wait(child).unwrap_or(Ending::Unknown)
}

fn wait(child: libc::pid_t) -> Result<Ending> {
    let mut status = 0;
    // SAFETY: the child is ours and waited for once; `status` is a valid place for its answer.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(last_errno());
    }
    Ok(if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Exit(libc::WEXITSTATUS(status))
    })
}
