//! What the notification queue carries (virtio 1.3 §5.11.2, VIRTIO_FS_F_NOTIFICATION): changes that others make in the
//! share, by nodeids of the session and names.
//!
//! A notification begins with [`OutHeader`], whose `unique` is 0 and whose `error` is the code of the notification.
//! FUSE has no notification that says what has happened under a name, so these have a [`CODE`] and a version of our
//! own. Their body is a [`Head`], and for a change what [`agent`] sends of one. The driver ignores other
//! codes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::{
    agent::{self, Change, Malformed},
    header::OutHeader,
    limits::NAME_LEN_MAX,
};

/// The code of our notifications ("tran"). FUSE's own are small numbers.
pub const CODE: i32 = 0x7472_616e;

/// The version of these notifications.
pub const VERSION: u32 = 1;

/// Bytes of the longest notification, and of each buffer of the notification queue (`notify_buf_size`).
pub const BUF_LEN: usize = 1024;

/// Follows the header of a notification with [`CODE`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// [`VERSION`].
    version: U32,
    /// [`CHANGE`], [`LOST`] or [`ENDED`].
    what: U32,
}
const _: () = assert!(size_of::<Head>() == 8);

const CHANGE: u32 = 1;
const LOST: u32 = 2;
const ENDED: u32 = 3;

/// Where the change begins.
const CHANGE_AT: usize = size_of::<OutHeader>() + size_of::<Head>();
const _: () = assert!(CHANGE_AT + agent::padded_len(2 * NAME_LEN_MAX) <= BUF_LEN);

/// One notification of [`CODE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// Something has changed.
    Change(Change<'a>),
    /// Changes were lost before this: anything may have changed.
    Lost,
    /// The device sees no more changes.
    Ended,
}

impl<'a> Notification<'a> {
    /// Writes the notification to the beginning of `to` and returns its length. A change whose names are longer than
    /// 255 bytes becomes [`Self::Lost`].
    pub fn write(&self, to: &mut [u8; BUF_LEN]) -> usize {
        to.fill(0);
        let (what, len) = match self {
            Self::Change(change) => match agent::put_change(&mut to[CHANGE_AT..], change) {
                Some(len) => (CHANGE, CHANGE_AT + len),
                None => (LOST, CHANGE_AT),
            },
            Self::Lost => (LOST, CHANGE_AT),
            Self::Ended => (ENDED, CHANGE_AT),
        };
        let header = OutHeader { len: (len as u32).into(), error: CODE.into(), unique: 0.into() };
        let head = Head { version: VERSION.into(), what: what.into() };
        to[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        to[size_of::<OutHeader>()..CHANGE_AT].copy_from_slice(head.as_bytes());
        len
    }

    /// Reads the notification that fills `bytes`. Returns `None` for one with another code.
    ///
    /// # Errors
    /// If it is not a notification, or has another version or an unknown content.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let (header, rest) = OutHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        if header.unique.get() != 0 || header.len.get() as usize != bytes.len() || header.error.get() <= 0 {
            return Err(Malformed);
        }
        if header.error.get() != CODE {
            return Ok(None);
        }
        let (head, mut rest) = Head::read_from_prefix(rest).map_err(|_| Malformed)?;
        if head.version.get() != VERSION {
            return Err(Malformed);
        }
        let notification = match head.what.get() {
            CHANGE => Self::Change(agent::take_change(&mut rest)?),
            LOST => Self::Lost,
            ENDED => Self::Ended,
            _ => return Err(Malformed),
        };
        if rest.is_empty() { Ok(Some(notification)) } else { Err(Malformed) }
    }
}

#[cfg(test)]
#[path = "notification_test.rs"]
mod notification_test;
