//! What becomes of a reply to a [`Pending`](super::Pending) request: the checks are those of the blocking operations.

use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    operation::parts::{DataOut, Entries, EntriesPlus, IoctlOutBytes, ReplyBody, Target, XattrOut},
    ops::{
        bmap::BmapOut, copy_file_range::CopyFileRangeOut, create::CreateOut, ioctl::IoctlOut, lk::LkOut,
        lseek::LseekOut, open::OpenOut, poll::PollOut, statfs::StatfsOut, statx::StatxOut, write::WriteOut,
        xattr::GetxattrOut,
    },
};
use zerocopy::FromBytes;

use super::{Session, sent::Sent};
use crate::{Errno, Platform};

/// The body of a reply that a [`Pending`](super::Pending) returns. Implemented for every operation that has one.
pub trait Answer: ReplyBody {
    /// What is returned: the structure, the number of bytes that were written to the room, or both.
    type Output;

    /// Returns the length of the structure that the reply begins with.
    #[doc(hidden)]
    fn fixed_len(sent: &Sent) -> usize;

    /// Checks a reply whose body has `body_len` bytes, and begins with `body`.
    #[doc(hidden)]
    fn accept<P: Platform>(
        session: &Session<P>,
        sent: &Sent,
        body: &[u8],
        body_len: usize,
    ) -> Result<Self::Output, Errno>;
}

/// Reads a structure that is all of the body.
fn whole<P: Platform, T: FromBytes>(session: &Session<P>, body: &[u8], body_len: usize) -> Result<T, Errno> {
    let body = body.get(..body_len).unwrap_or_default();
    T::read_from_bytes(body).map_err(|_| session.impossible_eio())
}

macro_rules! structures {
    ($($reply:ty: |$session:ident, $sent:ident, $out:ident| $check:expr;)*) => {
        $(impl Answer for $reply {
            type Output = Self;

            fn fixed_len(_: &Sent) -> usize {
                size_of::<Self>()
            }

            fn accept<P: Platform>(
                $session: &Session<P>,
                $sent: &Sent,
                body: &[u8],
                body_len: usize,
            ) -> Result<Self, Errno> {
                let _ = $sent;
                let $out: Self = whole($session, body, body_len)?;
                $check
            }
        })*
    };
}

structures! {
    (): |_session, sent, out| Ok(out);
    AttrOut: |session, sent, out| session.attributes(out);
    BmapOut: |_session, sent, out| Ok(out);
    CopyFileRangeOut: |session, sent, out| sent.number(session, out.bytes_copied.get()).map(|_| out);
    CreateOut: |session, sent, out| match sent.entry(session, out.entry) {
        Ok(entry) => Ok(Self { entry, ..out }),
        Err(error) => {
            // The server has opened the file nevertheless.
            session.release_unawaited(sent, out.entry.nodeid.into(), &out.open);
            Err(error)
        }
    };
    EntryOut: |session, sent, out| sent.entry(session, out);
    LkOut: |session, sent, out| session.possible_lock(out.lk).map(|lk| Self { lk });
    LseekOut: |session, sent, out| sent.number(session, out.offset.get()).map(|_| out);
    OpenOut: |_session, sent, out| Ok(out);
    PollOut: |_session, sent, out| Ok(out);
    StatfsOut: |_session, sent, out| Ok(out);
    StatxOut: |session, sent, out| session.checked_statx(out);
    WriteOut: |session, sent, out| if sent.opcode() == Opcode::CopyFileRange {
        sent.number(session, out.size.get().into()).map(|_| out)
    } else {
        session.taken(&out, sent.data_len).map(|_| out)
    };
}

macro_rules! bytes {
    ($($reply:ty),*) => {
        $(impl Answer for $reply {
            type Output = usize;

            fn fixed_len(_: &Sent) -> usize {
                0
            }

            fn accept<P: Platform>(_: &Session<P>, _: &Sent, _: &[u8], body_len: usize) -> Result<usize, Errno> {
                Ok(body_len)
            }
        })*
    };
}

bytes!(DataOut, Entries, EntriesPlus);

impl Answer for Target {
    type Output = usize;

    fn fixed_len(_: &Sent) -> usize {
        0
    }

    fn accept<P: Platform>(session: &Session<P>, sent: &Sent, _: &[u8], body_len: usize) -> Result<usize, Errno> {
        sent.text(session, body_len)
    }
}

/// The length of a value: of the one in the room or, without room, of the one that the server has.
impl Answer for XattrOut {
    type Output = usize;

    fn fixed_len(sent: &Sent) -> usize {
        if sent.has_room { 0 } else { size_of::<GetxattrOut>() }
    }

    fn accept<P: Platform>(session: &Session<P>, sent: &Sent, body: &[u8], body_len: usize) -> Result<usize, Errno> {
        let len = match sent.has_room {
            true if sent.opcode() == Opcode::Listxattr => return sent.text(session, body_len),
            true => body_len as u64,
            false => whole::<P, GetxattrOut>(session, body, body_len)?.size.get().into(),
        };
        sent.number(session, len).map(|len| len as usize)
    }
}

impl Answer for IoctlOutBytes {
    type Output = (IoctlOut, usize);

    fn fixed_len(_: &Sent) -> usize {
        size_of::<IoctlOut>()
    }

    fn accept<P: Platform>(
        session: &Session<P>,
        _: &Sent,
        body: &[u8],
        body_len: usize,
    ) -> Result<(IoctlOut, usize), Errno> {
        let bytes_len = body_len.checked_sub(size_of::<IoctlOut>()).ok_or_else(|| session.impossible_eio())?;
        Ok((whole(session, body, size_of::<IoctlOut>())?, bytes_len))
    }
}
