//! A request, copied from the driver's buffers once and parsed from the copy.

use transom_wire::{
    Name, NameError, NodeId, Row,
    extension::Extensions,
    header::InHeader,
    limits::{DATA_LEN_MAX, MESSAGE_LEN_MAX},
    operation::RestKind,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{
    context::{BlockingMode, Context},
    slices::{self, GuestSlice, GuestSlices},
};
use crate::Errno;

/// Bytes of message memory that each thread keeps: enough for two names, a symbolic link's target or a BATCH_FORGET of
/// 500 inodes. A SETXATTR may need sixteen times as much, which is freed once it is served.
const MESSAGE_KEPT: usize = 8192;

/// Memory that a thread reuses for each request.
pub struct Scratch {
    message: Vec<u8>,
}

impl Scratch {
    /// Frees the memory of a long message.
    pub(super) fn trim(&mut self) {
        if self.message.capacity() > MESSAGE_KEPT {
            *self = Self::default();
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self { message: Vec::with_capacity(MESSAGE_KEPT) }
    }
}

/// A request without its header, parsed argument by argument.
#[derive(Clone)]
pub struct Request<'a> {
    pub(super) context: Context<'a>,
    pub(super) nodeid: NodeId,
    rest: &'a [u8],
    /// Everything that the driver sent.
    readable: &'a [GuestSlice<'a>],
    /// Offset of a WRITE's data in `readable`.
    data_offset: usize,
    data_len: usize,
}

/// Returns the header, or `None` if the request is too short for one.
pub(super) fn read_header(readable: &[GuestSlice<'_>]) -> Option<InHeader> {
    let mut header = InHeader::new_zeroed();
    let copied = slices::copy_out(readable, 0, header.as_mut_bytes());
    (copied == size_of::<InHeader>()).then_some(header)
}

impl<'a> Request<'a> {
    /// Copies everything after the header except file data.
    ///
    /// # Errors
    ///
    /// EINVAL if the header's length is less than a header or more than the buffers hold, E2BIG beyond
    /// [`MESSAGE_LEN_MAX`]. Bytes of the buffers past that length are ignored.
    pub(super) fn read(
        header: &InHeader,
        row: &Row,
        readable: &'a [GuestSlice<'a>],
        scratch: &'a mut Scratch,
        blocking: BlockingMode,
    ) -> Result<Self, Errno> {
        let header_len = size_of::<InHeader>();
        let len = header.len.get() as usize;
        if len < header_len || len > slices::total_len(readable) {
            return Err(Errno::INVAL);
        }
        let body_len = len - header_len;
        let has_data = row.rest == RestKind::FileData;
        let copied_len = if has_data { body_len.min(row.args_len) } else { body_len };
        if copied_len > MESSAGE_LEN_MAX {
            return Err(Errno::TOOBIG);
        }
        scratch.message.resize(copied_len, 0);
        let copied = slices::copy_out(readable, header_len, &mut scratch.message);
        // Checked above. Bytes that are not copied would be those of an earlier request.
        if copied != copied_len {
            return Err(Errno::INVAL);
        }
        let context = Context {
            unique: header.unique.into(),
            uid: header.uid.get(),
            gid: header.gid.get(),
            pid: header.pid.get(),
            blocking,
            extensions: Extensions::default(),
        };
        Ok(Self {
            context,
            nodeid: header.nodeid.into(),
            rest: &scratch.message,
            readable,
            data_offset: header_len + copied_len,
            data_len: (body_len - copied_len).min(DATA_LEN_MAX as usize),
        })
    }

    /// Parses the next structure. Errors: EINVAL if the message is too short.
    pub(super) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::INVAL)?;
        self.rest = rest;
        Ok(value)
    }

    /// Parses the next `len` bytes. Errors: EINVAL if the message is too short.
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Parses the next NUL-terminated string, without its NUL. Errors: EINVAL if there is no NUL.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        let (string, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(string)
    }

    /// Parses the next NUL-terminated name. Errors: ENAMETOOLONG, or EINVAL if it is not one component of a path.
    pub(super) fn name(&mut self) -> Result<Name<'a>, Errno> {
        Name::new(self.string()?).map_err(|error| match error {
            NameError::TooLong(_) => Errno::NAMETOOLONG,
            NameError::Empty | NameError::ForbiddenByte(_) | NameError::Dots => Errno::INVAL,
        })
    }

    /// Appends to `slices` the first `len` bytes of a WRITE's data, which are still in the driver's buffers.
    ///
    /// # Errors
    ///
    /// EINVAL if the request has fewer.
    pub(super) fn data_slices(&self, len: usize, slices: &mut GuestSlices<'a>) -> Result<(), Errno> {
        if len > self.data_len {
            return Err(Errno::INVAL);
        }
        slices::range(self.readable, self.data_offset, len, slices);
        Ok(())
    }

    /// Returns the rest of the message.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Parses the rest of the message as extensions into the context. Errors: EINVAL if they are malformed.
    pub(super) fn extensions(&mut self) -> Result<(), Errno> {
        self.context.extensions = Extensions::parse(self.rest()).map_err(|_| Errno::INVAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_no_memory_once_it_is_served() {
        let mut scratch = Scratch::default();
        let kept = scratch.message.capacity();
        scratch.message.resize(MESSAGE_LEN_MAX, 0);
        scratch.trim();
        assert_eq!(scratch.message.capacity(), kept);
    }
}
