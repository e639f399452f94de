//! A reply, written to the beginning of the driver's buffers.

use transom_wire::{U64, header::OutHeader};
use zerocopy::{Immutable, IntoBytes};

use super::slices::{self, GuestSlice, GuestSlices};
use crate::Errno;

/// The destination of a reply. Either [`Reply::send`] (or a sibling) succeeds once, or [`Reply::error`] is called.
pub struct Reply<'a> {
    writable: &'a [GuestSlice<'a>],
    has_header_room: bool,
    /// Room after the header.
    room_bytes: usize,
    sent_len_bytes: u32,
    pub(super) unique: U64,
    /// Bytes of file data, for the metrics.
    pub(super) data_len_bytes: u64,
}

const HEADER_LEN: usize = size_of::<OutHeader>();

impl<'a> Reply<'a> {
    pub(super) fn new(writable: &'a [GuestSlice<'a>]) -> Self {
        let len = slices::total_len(writable);
        let (has_header_room, room_bytes) = (len >= HEADER_LEN, len.saturating_sub(HEADER_LEN));
        Self { writable, has_header_room, room_bytes, sent_len_bytes: 0, unique: U64::ZERO, data_len_bytes: 0 }
    }

    /// Returns the number of bytes that [`Reply::error`] or a sending method wrote.
    pub(super) fn len_bytes(&self) -> u32 {
        self.sent_len_bytes
    }

    /// Checks, before anything is done, that a header and a payload of `len` bytes fit. Errors: EINVAL.
    pub(super) fn need(&self, len: usize) -> Result<(), Errno> {
        if !self.has_header_room || len > self.room_bytes { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Returns the room for payload, at most `wanted`.
    pub(super) fn room_up_to(&self, wanted: u32) -> usize {
        self.room_bytes.min(wanted as usize)
    }

    /// Appends to `slices` the buffers for `len` bytes of file data.
    pub(super) fn data_slices(&self, len: usize, slices: &mut GuestSlices<'a>) {
        slices::range(self.writable, HEADER_LEN, len, slices);
    }

    /// Sends only a header.
    pub(super) fn empty(&mut self) -> Result<(), Errno> {
        self.header(0, 0)
    }

    /// Sends one structure.
    pub(super) fn send<T: IntoBytes + Immutable>(&mut self, payload: &T) -> Result<(), Errno> {
        self.bytes(payload.as_bytes())
    }

    /// Sends `payload`. Errors: EINVAL if it does not fit.
    pub(super) fn bytes(&mut self, payload: &[u8]) -> Result<(), Errno> {
        self.two([payload, &[]])
    }

    /// Sends two pieces of payload, one after the other. Errors: EINVAL if they do not fit.
    pub(super) fn two(&mut self, [first, second]: [&[u8]; 2]) -> Result<(), Errno> {
        let len = first.len() + second.len();
        self.need(len)?;
        slices::copy_in(self.writable, HEADER_LEN, first);
        slices::copy_in(self.writable, HEADER_LEN + first.len(), second);
        self.header(len, 0)
    }

    /// Sends a header for `len` bytes that were written through [`Reply::data_slices`].
    pub(super) fn data(&mut self, len: usize) -> Result<(), Errno> {
        self.data_len_bytes = len as u64;
        self.header(len, 0)
    }

    /// Appends bytes to a reply that was sent, unless there is no room for all of them.
    pub(super) fn append_if_room(&mut self, bytes: &[u8]) {
        let sent = (self.sent_len_bytes as usize).saturating_sub(HEADER_LEN);
        if !bytes.is_empty() && bytes.len() <= self.room_bytes.saturating_sub(sent) {
            slices::copy_in(self.writable, HEADER_LEN + sent, bytes);
            // There was room for the header before.
            let _ = self.header(sent + bytes.len(), 0);
        }
    }

    /// Sends an error; returns the number of bytes written, which is 0 if not even a header fits.
    pub(super) fn error(&mut self, errno: Errno) -> u32 {
        match self.header(0, -errno.raw_os_error()) {
            Ok(()) => self.sent_len_bytes,
            Err(_) => 0,
        }
    }

    fn header(&mut self, payload_len: usize, error: i32) -> Result<(), Errno> {
        let len = (HEADER_LEN + payload_len) as u32;
        let header = OutHeader { len: len.into(), error: error.into(), unique: self.unique };
        if !self.has_header_room {
            return Err(Errno::INVAL);
        }
        slices::copy_in(self.writable, 0, header.as_bytes());
        self.sent_len_bytes = len;
        Ok(())
    }
}
