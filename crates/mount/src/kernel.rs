//! `/dev/fuse`: requests out of the kernel into shared memory, and replies from there into the kernel.
//!
//! The bytes are only ever named to the kernel, which copies them; what of a message must not change under our hands comes
//! from memory of our own.
//! Source: linux/fs/fuse/dev.c, include/uapi/linux/fuse.h.

#![expect(unsafe_code, reason = "system calls on memory that a daemon shares take pointers; ioctl(2) takes anything")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use transom_guest::dma::DmaMemory;
use transom_wire::{
    backing::{BACKING_CLOSE, BACKING_OPEN, BackingMap},
    header::OutHeader,
};
use zerocopy::IntoBytes as _;

/// FUSE_DEV_IOC_CLONE: `_IOR(229, 0, uint32_t)`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// A descriptor of `/dev/fuse`. It never blocks.
#[derive(Debug)]
pub(super) struct Kernel(OwnedFd);

/// A piece of shared memory: offset and length in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'m> {
    pub(super) memory: &'m DmaMemory,
    pub(super) offset: usize,
    pub(super) len_bytes: usize,
}

impl Kernel {
    /// One that is not mounted yet.
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(Self(rustix::fs::open("/dev/fuse", flags, Mode::empty())?))
    }

    /// One that somebody else has opened and mounted.
    pub(super) fn mounted(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// Another way to the same connection: replies go through the descriptor by which the request came.
    pub(super) fn another(&self) -> io::Result<Self> {
        let another = Self::open()?;
        let source = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the request reads one `u32`, which lives until the call returns.
        let done = unsafe { libc::ioctl(another.0.as_raw_fd(), CLONE, &raw const source) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(another) }
    }

    /// Registers `file`, for opens to be passed through to; it stays open in the kernel until [`Self::unregister`]. Gives its
    /// number, which is above 0.
    ///
    /// Errors: EPERM without CAP_SYS_ADMIN in the first user namespace or where INIT has not agreed on it, ELOOP for a file system
    /// on top of another, EINVAL for what is no regular file.
    pub(super) fn register(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the request reads one `BackingMap` behind the pointer, which `map` is, and keeps no pointer.
        let id = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_OPEN as libc::Ioctl, &raw const map) };
        result(id as isize)?;
        if id > 0 { Ok(id) } else { Err(Errno::IO) }
    }

    /// Ends a registration. What is open by it stays so. Errors: ENOENT for a number that is none.
    pub(super) fn unregister(&self, id: i32) -> Result<(), Errno> {
        let id = id.cast_unsigned();
        // SAFETY: the request reads one `u32` behind the pointer, which `id` is, and keeps no pointer.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_CLOSE as libc::Ioctl, &raw const id) };
        result(done as isize).map(drop)
    }

    /// Reads one request into `room`; returns its length.
    ///
    /// Errors: EAGAIN while there is none, ENODEV once it is unmounted, ECONNABORTED once somebody has aborted the connection.
    pub(super) fn read(&self, room: Piece<'_>) -> Result<usize, Errno> {
        let iov = room.iovec();
        // SAFETY: the kernel writes within `iov`, which is shared memory that no Rust reference points into: see `iovec`.
        asked_again(|| result(unsafe { libc::readv(self.0.as_raw_fd(), &raw const iov, 1) }))
    }

    /// Reads a request into memory of this process's own. Errors: as [`Self::read`].
    pub(super) fn read_into(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        asked_again(|| rustix::io::read(self, &mut *bytes))
    }

    /// Answers a request; `body` is what follows the header.
    ///
    /// ENOENT where nobody waits for it any more, EINVAL where the kernel does not take it as an answer, in which case the
    /// request still waits.
    pub(super) fn reply(&self, header: &OutHeader, body: Piece<'_>) -> Result<(), Errno> {
        let bytes = header.as_bytes();
        let header = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let iovs = [header, body.iovec()];
        let count = if body.len_bytes == 0 { 1 } else { 2 };
        // SAFETY: the kernel reads the header's own bytes, and those of `body`, which is shared memory: see `iovec`.
        result(unsafe { libc::writev(self.0.as_raw_fd(), iovs.as_ptr(), count) }).map(drop)
    }

    /// Writes one message of our own, a reply or a notification.
    pub(super) fn write(&self, header: &OutHeader, body: &[u8]) -> Result<(), Errno> {
        let slices = [io::IoSlice::new(header.as_bytes()), io::IoSlice::new(body)];
        rustix::io::writev(&self.0, if body.is_empty() { &slices[..1] } else { &slices }).map(drop)
    }

    /// Answers the request `unique` with success and nothing else.
    pub(super) fn done(&self, unique: u64) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() as u32;
        self.write(&OutHeader { len: len.into(), error: 0.into(), unique: unique.into() }, &[])
    }

    /// Answers the request `unique` with an error and nothing else.
    pub(super) fn fail(&self, unique: u64, errno: Errno) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() as u32;
        self.write(&OutHeader { len: len.into(), error: (-errno.raw_os_error()).into(), unique: unique.into() }, &[])
    }
}

/// ECONNABORTED also stands for a request that was being read when the mount was unmounted; the next read says what happened.
fn asked_again(mut read: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    match read() {
        Err(Errno::CONNABORTED) => read(),
        result => result,
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Piece<'_> {
    /// For the kernel, and for the time of one call. Panics where the piece does not lie within the memory.
    pub(super) fn iovec(&self) -> libc::iovec {
        let end = self.offset.checked_add(self.len_bytes);
        assert!(end.is_some_and(|end| end <= self.memory.len()), "a piece lies within its memory");
        let start = self.memory.start().as_ptr().wrapping_add(self.offset);
        libc::iovec { iov_base: start.cast(), iov_len: self.len_bytes }
    }
}

fn result(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
