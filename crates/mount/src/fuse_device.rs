//! `/dev/fuse`: reads requests into shared memory, and writes replies from there.
//!
//! Only the kernel copies the bytes in shared memory. The header of a reply, which must not change after it was
//! checked, comes from private memory. Source: linux/fs/fuse/dev.c, include/uapi/linux/fuse.h.

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

/// A descriptor of `/dev/fuse`, in non-blocking mode.
#[derive(Debug)]
pub(super) struct FuseDevice(OwnedFd);

/// A range of shared memory. Peers may change the bytes at any time.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedBuffer<'m> {
    pub(super) memory: &'m DmaMemory,
    pub(super) offset: usize,
    pub(super) len_bytes: usize,
}

impl FuseDevice {
    /// Opens `/dev/fuse`. The descriptor is not mounted yet.
    pub(super) fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(Self(rustix::fs::open("/dev/fuse", flags, Mode::empty())?))
    }

    /// Wraps a descriptor that somebody else has opened and mounted.
    pub(super) fn mounted(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(fd))
    }

    /// Opens another descriptor of the same mount. A reply must go through the descriptor that its request was read
    /// from.
    pub(super) fn another(&self) -> io::Result<Self> {
        let another = Self::open()?;
        let source = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the request reads one `u32`, which lives until the call returns.
        let done = unsafe { libc::ioctl(another.0.as_raw_fd(), CLONE, &raw const source) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(another) }
    }

    /// Registers `file` as a backing file, which opens can be passed through to, and returns its id, which is positive.
    ///
    /// The file stays open in the kernel until [`Self::unregister`].
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN in the initial user namespace or without passthrough in INIT, ELOOP for a file on a
    /// stacked file system, EINVAL if it is not a regular file.
    pub(super) fn register(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the request reads one `BackingMap` through the pointer, which `map` is, and keeps no pointer.
        let id = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_OPEN as libc::Ioctl, &raw const map) };
        result(id as isize)?;
        if id > 0 { Ok(id) } else { Err(Errno::IO) }
    }

    /// Ends the registration `id`. Files that are open through it stay open.
    ///
    /// # Errors
    /// ENOENT if there is no such registration.
    pub(super) fn unregister(&self, id: i32) -> Result<(), Errno> {
        let id = id.cast_unsigned();
        // SAFETY: the request reads one `u32` through the pointer, which `id` is, and keeps no pointer.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_CLOSE as libc::Ioctl, &raw const id) };
        result(done as isize).map(drop)
    }

    /// Reads one request into `buffer`, and returns its length in bytes.
    ///
    /// # Errors
    /// EAGAIN if none is waiting, ENOENT if the request was interrupted, ENODEV once the mount is unmounted,
    /// ECONNABORTED once the connection is aborted.
    pub(super) fn read(&self, buffer: SharedBuffer<'_>) -> Result<usize, Errno> {
        let iov = buffer.iovec();
        // SAFETY: the kernel writes within `iov`, which is shared memory that no Rust reference points into: see
        // `iovec`.
        retry_aborted(|| result(unsafe { libc::readv(self.0.as_raw_fd(), &raw const iov, 1) }))
    }

    /// Reads a request into private memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_into(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        retry_aborted(|| rustix::io::read(self, &mut *bytes))
    }

    /// Replies to a request with `header` and `body`.
    ///
    /// # Errors
    /// ENOENT if nobody waits for the reply, ENODEV once the mount is unmounted, EINVAL if the kernel rejects it; the
    /// request then still waits.
    pub(super) fn reply(&self, header: &OutHeader, body: SharedBuffer<'_>) -> Result<(), Errno> {
        let bytes = header.as_bytes();
        let header = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let iovs = [header, body.iovec()];
        let count = if body.len_bytes == 0 { 1 } else { 2 };
        // SAFETY: the kernel reads the header's own bytes, and those of `body`, which is shared memory: see `iovec`.
        result(unsafe { libc::writev(self.0.as_raw_fd(), iovs.as_ptr(), count) }).map(drop)
    }

    /// Writes a reply or a notification from private memory.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub(super) fn write(&self, header: &OutHeader, body: &[u8]) -> Result<(), Errno> {
        let slices = [io::IoSlice::new(header.as_bytes()), io::IoSlice::new(body)];
        rustix::io::writev(&self.0, if body.is_empty() { &slices[..1] } else { &slices }).map(drop)
    }

    /// Replies to the request `unique` with success and no body.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub(super) fn done(&self, unique: u64) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() as u32;
        self.write(&OutHeader { len: len.into(), error: 0.into(), unique: unique.into() }, &[])
    }

    /// Replies to the request `unique` with an error.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub(super) fn fail(&self, unique: u64, errno: Errno) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() as u32;
        self.write(&OutHeader { len: len.into(), error: (-errno.raw_os_error()).into(), unique: unique.into() }, &[])
    }
}

/// Reads again after ECONNABORTED, which may only mean that the mount was unmounted during the read. The second read
/// tells.
fn retry_aborted(mut read: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    match read() {
        Err(Errno::CONNABORTED) => read(),
        result => result,
    }
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SharedBuffer<'_> {
    /// Returns the buffer for one system call.
    ///
    /// # Panics
    /// If the buffer does not lie within its memory.
    pub(super) fn iovec(&self) -> libc::iovec {
        let end = self.offset.checked_add(self.len_bytes);
        assert!(end.is_some_and(|end| end <= self.memory.len()), "a buffer lies within its memory");
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
