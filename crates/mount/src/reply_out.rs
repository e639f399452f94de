//! Last stage: checks a reply of the daemon, and writes it to `/dev/fuse`.
//!
//! The body of a reply goes from the slot to the kernel without a copy. An invalid reply fails its request with EIO.

use std::sync::Arc;

use rustix::io::Errno;
use transom_guest::{dma::DmaMemory, ring::Used};
use transom_wire::header::OutHeader;

use super::{
    MountEnd,
    fuse_device::{FuseDevice, SharedBuffer},
    passthrough::RequestKind,
    request_queue::{InFlight, RequestQueue},
};

/// The largest errno of a reply. From 512 on they are internal to the kernel (`ERESTARTSYS` and others).
const ERRNO_MAX: i32 = 511;

/// A used chain, and what the daemon wrote into it.
pub(super) struct Reply<'q> {
    pub(super) slot: u16,
    /// The number of the request.
    pub(super) unique: u64,
    pub(super) kind: RequestKind,
    /// Bytes that the daemon says it has written.
    pub(super) written_bytes: usize,
    /// The header and the body, or `None` if the reply is invalid.
    pub(super) message: Option<(OutHeader, SharedBuffer<'q>)>,
}

impl<'q> Reply<'q> {
    /// Reads and checks the reply in the slot of `used`. Copies the header only.
    pub(super) fn read(queue: &'q RequestQueue, used: Used) -> Self {
        let slot = used.cookie;
        let InFlight { unique, len_bytes, kind, .. } = queue.in_flight(slot);
        let buffer = queue.reply_buffer(slot, len_bytes);
        let written_bytes = used.written_bytes as usize;
        let header = read_header(buffer.memory, buffer.offset, written_bytes);
        let message = header.filter(|header| header.unique.get() == unique).map(|header| {
            let body = SharedBuffer {
                memory: buffer.memory,
                offset: buffer.offset + size_of::<OutHeader>(),
                len_bytes: header.len.get() as usize - size_of::<OutHeader>(),
            };
            (header, body)
        });
        Self { slot, unique, kind, written_bytes, message }
    }

    /// Returns the error that the daemon replied with: EIO for an invalid reply.
    pub(super) fn outcome(&self) -> Result<(), Errno> {
        match &self.message {
            None => Err(Errno::IO),
            Some((header, _)) if header.error.get() == 0 => Ok(()),
            Some((header, _)) => Err(Errno::from_raw_os_error(-header.error.get())),
        }
    }
}

/// Writes replies through one descriptor of `/dev/fuse`, the one that the requests were read from.
pub(super) struct ReplyWriter {
    device: Arc<FuseDevice>,
}

impl ReplyWriter {
    /// Creates a writer for `device`.
    pub(super) fn new(device: Arc<FuseDevice>) -> Self {
        Self { device }
    }

    /// Writes a reply whose body lies in shared memory. Returns whether the kernel took it.
    ///
    /// # Errors
    /// [`MountEnd::Unmounted`]. A reply that the kernel rejects is replaced by EIO.
    pub(super) fn write(&self, header: &OutHeader, body: SharedBuffer<'_>) -> Result<bool, MountEnd> {
        let body_len = body.len_bytes;
        self.check(header.unique.get(), body_len, self.device.reply(header, body))
    }

    /// As [`Self::write`], with a body in private memory.
    pub(super) fn write_bytes(&self, header: &OutHeader, body: &[u8]) -> Result<bool, MountEnd> {
        self.check(header.unique.get(), body.len(), self.device.write(header, body))
    }

    /// Answers the request `unique` with success and no body, or with an error.
    pub(super) fn finish(&self, unique: u64, outcome: Result<(), Errno>) -> Result<(), MountEnd> {
        let written = match outcome {
            Ok(()) => self.device.done(unique),
            Err(errno) => self.device.fail(unique, errno),
        };
        self.check(unique, 0, written).map(drop)
    }

    /// Answers the request `unique` with EIO. Does nothing if it has been answered.
    pub(super) fn fail(&self, unique: u64) -> Result<(), MountEnd> {
        match self.device.fail(unique, Errno::IO) {
            Err(Errno::NODEV) => Err(MountEnd::Unmounted),
            _ => Ok(()),
        }
    }

    fn check(&self, unique: u64, body_len: usize, written: Result<(), Errno>) -> Result<bool, MountEnd> {
        match written {
            Ok(()) => Ok(true),
            // The caller no longer waits.
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NODEV) => Err(MountEnd::Unmounted),
            Err(errno) => {
                tracing::warn!(unique, body_len, %errno, "the kernel rejected a reply; the request fails with EIO");
                self.fail(unique).map(|()| false)
            }
        }
    }
}

/// Reads the header of a reply at `offset`, of which the device says to have written `written_bytes`.
///
/// Returns `None` if the reply is invalid: longer than what was written, shorter than its header, or with an error that
/// is not an errno.
pub(super) fn read_header(memory: &DmaMemory, offset: usize, written_bytes: usize) -> Option<OutHeader> {
    let mut header = [0; size_of::<OutHeader>()];
    if written_bytes < header.len() {
        return None;
    }
    memory.read(offset, &mut header);
    let header: OutHeader = zerocopy::transmute!(header);
    let is_valid = (size_of::<OutHeader>()..=written_bytes).contains(&(header.len.get() as usize))
        && (-ERRNO_MAX..=0).contains(&header.error.get());
    is_valid.then_some(header)
}

#[cfg(test)]
#[path = "reply_out_test.rs"]
mod tests;
