//! Checks that apply to every reply: the header must agree with the request and with the number of bytes written.
//!
//! What follows the header is the reply type in the operation's row: a [`Structure`], or one [`WithBytes`].

use transom_wire::{
    Unique,
    header::OutHeader,
    operation::{
        Shape,
        parts::{DataOut, Entries, EntriesPlus, IoctlOutBytes, ReplyBody, Target, XattrOut},
    },
    ops::ioctl::IoctlOut,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Errno;

/// Length of a reply's header in bytes.
pub(crate) const HEADER_LEN: usize = size_of::<OutHeader>();

/// Room for a reply with a structure after its header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Room<T> {
    header: OutHeader,
    /// Valid once the reply was checked, up to the length that it states.
    pub(crate) body: T,
}

impl<T: FromZeros> Room<T> {
    pub(crate) fn new() -> Self {
        Self { header: OutHeader::new_zeroed(), body: T::new_zeroed() }
    }
}

/// A reply that is one structure, `()` for a header alone.
pub(crate) trait Structure: ReplyBody + FromBytes + IntoBytes + KnownLayout + Unaligned {}

impl<T: ReplyBody + FromBytes + IntoBytes + KnownLayout + Unaligned> Structure for T {}

/// A reply that ends with a variable number of bytes, which are written to the caller's buffer.
pub trait WithBytes: ReplyBody {
    /// What comes before them.
    type Structure: FromBytes + IntoBytes + KnownLayout + Unaligned;
}

macro_rules! with_bytes {
    ($($reply:ty: $structure:ty;)*) => {
        $(
            impl WithBytes for $reply {
                type Structure = $structure;
            }
            const _: () = match <$reply>::SHAPE {
                Shape::UpTo { head_len } => assert!(head_len == size_of::<$structure>()),
                Shape::UpToOr { .. } | Shape::Text { .. } => assert!(size_of::<$structure>() == 0),
                Shape::None | Shape::Fixed(_) => panic!("a reply without a variable part"),
            };
        )*
    };
}

with_bytes! {
    DataOut: ();
    Entries: ();
    EntriesPlus: ();
    Target: ();
    XattrOut: ();
    IoctlOutBytes: IoctlOut;
}

/// A reply other than a success.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server returned an error.
    Errno(Errno),
    /// The reply is not a possible one to this request.
    Impossible,
}

/// Checks the header in `head` of a reply of `written` bytes, for which there was room for `room`. Returns the number
/// of bytes after the header.
pub(super) fn check(head: &[u8], written: usize, room: usize, unique: Unique) -> Result<usize, Failure> {
    let (header, _) = OutHeader::read_from_prefix(head).map_err(|_| Failure::Impossible)?;
    let is_possible = (HEADER_LEN..=room).contains(&written)
        && header.len.get() as usize == written
        && Unique::from(header.unique) == unique;
    if !is_possible {
        return Err(Failure::Impossible);
    }
    match header.error.get() {
        0 => Ok(written - HEADER_LEN),
        error @ -4095..=-1 if written == HEADER_LEN => Err(Failure::Errno(Errno::from_raw(-error))),
        _ => Err(Failure::Impossible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(len: u32, error: i32, unique: u64) -> OutHeader {
        OutHeader { len: len.into(), error: error.into(), unique: unique.into() }
    }

    #[test]
    fn a_reply_that_agrees_with_its_request_is_taken() {
        assert_eq!(check(reply(16, 0, 8).as_bytes(), 16, 16, Unique(8)), Ok(0));
        assert_eq!(check(reply(24, 0, 8).as_bytes(), 24, 80, Unique(8)), Ok(8));
        assert_eq!(check(reply(16, -2, 8).as_bytes(), 16, 80, Unique(8)), Err(Failure::Errno(Errno::NOENT)));
        assert_eq!(
            check(reply(16, -4095, 8).as_bytes(), 16, 80, Unique(8)),
            Err(Failure::Errno(Errno::from_raw(4095)))
        );
    }

    #[test]
    fn a_reply_that_cannot_be_one_is_refused() {
        for (header, written, why) in [
            (reply(15, 0, 8), 15, "shorter than a header"),
            (reply(81, 0, 8), 81, "longer than its room"),
            (reply(24, 0, 8), 23, "fewer bytes than it says"),
            (reply(24, 0, 8), 25, "more bytes than it says"),
            (reply(16, 0, 10), 16, "an answer to another"),
            (reply(16, 1, 8), 16, "a positive error"),
            (reply(16, -4096, 8), 16, "an invalid error"),
            (reply(16, i32::MIN, 8), 16, "the least number"),
            (reply(24, -2, 8), 24, "an error with a body"),
        ] {
            assert_eq!(check(header.as_bytes(), written, 80, Unique(8)), Err(Failure::Impossible), "{why}");
        }
    }
}
