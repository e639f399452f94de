//! Children by fork, for what a thread cannot stand in for: to die of a signal, and to share a file offset.
//!
//! A child calls the kernel and nothing else, since other threads of the parent may have held any lock; [`Child`] is of
//! a process without other threads, and does anything.
#![expect(unsafe_code, reason = "fork")]

use std::{
    ffi::CString,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use rustix::pipe::PipeFlags;

use super::raw::last_errno;
use crate::client::{Errno, Result};

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

/// Executes the file at `path` in a child that has no arguments, no environment and this process's descriptors.
///
/// Errors: execve(2)'s.
pub fn execute(path: &[u8]) -> Result<Ending> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (arguments, environment) = ([path.as_ptr(), ptr::null()], [ptr::null()]);
    let error_to = to.as_raw_fd();
    let ending = fork_and_wait(|| {
        // SAFETY: the path is a string that ends in NUL, the two lists end in null pointers, and all outlive the call,
        // which only returns with an error.
        unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let errno = last_errno().raw_os_error().to_ne_bytes();
        // SAFETY: writes bytes of the child's own stack to a descriptor that it has inherited.
        unsafe { libc::write(error_to, errno.as_ptr().cast(), errno.len()) };
        0
    });
    drop(to);
    let mut errno = [0; 4];
    match rustix::io::read(&from, &mut errno)? {
        4 => Err(Errno::from_raw_os_error(i32::from_ne_bytes(errno))),
        _ => Ok(ending),
    }
}

/// A child process that runs Rust as its parent does.
#[derive(Debug)]
pub struct Child(libc::pid_t);

impl Child {
    /// Forks; the child runs `body` and ends with it.
    ///
    /// Errors: fork(2)'s, and EBUSY where this process has other threads, whose locks the child would inherit.
    pub fn fork(body: impl FnOnce()) -> Result<Self> {
        if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: this process has one thread, so that the child's copy of its memory is whole: no lock in it is held
        // by a thread that the child does not have.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                body();
                // SAFETY: ends the child without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
            child if child < 0 => Err(last_errno()),
            child => Ok(Self(child)),
        }
    }

    /// Waits until it has ended.
    pub fn wait(self) -> Ending {
        wait(self.0).unwrap_or(Ending::Unknown)
    }
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
