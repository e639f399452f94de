//! Writes replies: what a file system returns, by the reply type in the table.

use transom_wire::{
    Handle, U64,
    attr::{AttrOut, EntryOut},
    limits::DATA_LEN_MAX,
    operation::parts::{DataOut, Entries, EntriesPlus, IoctlOutBytes, NoReply, ReplyBody, Target, XattrOut},
    ops::{
        bmap::BmapOut, copy_file_range::CopyFileRangeOut, create::CreateOut, init::InitOut, ioctl::IoctlOut, lk::LkOut,
        lseek::LseekOut, open::OpenOut, poll::PollOut, statfs::StatfsOut, statx::StatxOut, write::WriteOut,
        xattr::GetxattrOut,
    },
};
use zerocopy::IntoBytes;

use super::{
    dirents::{Dirents, DirentsPlus},
    reply::Reply,
    slices::{GuestSlice, GuestSlices},
};
use crate::Errno;

/// The reply to a request for extended attributes: bytes, or only their size if the guest requested that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrReply {
    /// Size of the value or list, in bytes.
    Size(u32),
    /// The value, or the names, each NUL-terminated.
    Bytes(Vec<u8>),
}

/// The reply to IOCTL.
#[derive(Debug, Clone, Default)]
pub struct IoctlReply {
    /// The result.
    pub out: IoctlOut,
    /// Data written to the request's argument, at most `out_size` bytes.
    pub data: Vec<u8>,
}

/// The body of a reply, after its header.
pub trait Answer: ReplyBody {
    /// Type that a file system returns.
    type Value;
    /// Type that a file system fills while it serves the request.
    type Sink<'a>;
    /// Type that owns the sink's memory until the reply is sent. Filled in place, since a move may copy kilobytes.
    type Room<'a>: Default;

    /// Makes room for `size` bytes, which the arguments request and the driver's buffers have.
    fn make_room<'a>(_room: &mut Self::Room<'a>, _: &Reply<'a>, _size: usize) {}
    /// Returns the sink.
    fn sink<'a>(room: &'a mut Self::Room<'_>) -> Self::Sink<'a>;
    /// Sends the reply. `size` is the one that was passed to [`Answer::make_room`].
    ///
    /// # Errors
    ///
    /// EINVAL if the reply does not fit.
    fn send(value: Self::Value, room: &Self::Room<'_>, size: usize, reply: &mut Reply<'_>) -> Result<(), Errno>;

    /// Returns the number of the inode that the reply names, if it names one.
    fn nodeid(_value: &mut Self::Value) -> Option<&mut U64> {
        None
    }

    /// Returns the number of the open file that the reply names, if it names one.
    fn handle(_value: &Self::Value) -> Option<Handle> {
        None
    }

    /// Upper limit for the size in the arguments, which is also limited to the room in the driver's buffers. `None`:
    /// the size is left as it is, and [`Answer::make_room`] gets 0.
    const SIZE_MAX: Option<u32> = None;
}

/// Implements [`Answer`] for replies that are returned rather than filled in.
macro_rules! returned {
    ($(
        $reply:ty => $value:ty $([$($nodeid:ident).+])? $({$($handle:ident).+})?, |$v:ident, $to:ident| $send:expr;
    )*) => {$(
        impl Answer for $reply {
            type Value = $value;
            type Sink<'a> = ();
            type Room<'a> = ();

            fn sink(_: &mut ()) {}
            fn send($v: $value, (): &(), _: usize, $to: &mut Reply<'_>) -> Result<(), Errno> {
                $send
            }
            $(
                fn nodeid(value: &mut $value) -> Option<&mut U64> {
                    Some(&mut value.$($nodeid).+)
                }
            )?
            $(
                fn handle(value: &$value) -> Option<Handle> {
                    Some(value.$($handle).+.into())
                }
            )?
        }
    )*};
}

returned! {
    NoReply => (), |_value, _reply| Ok(());
    () => (), |_value, reply| reply.empty();
    EntryOut => EntryOut [nodeid], |value, reply| reply.send(&value);
    OpenOut => OpenOut {fh}, |value, reply| reply.send(&value);
    CreateOut => CreateOut [entry.nodeid] {open.fh}, |value, reply| reply.send(&value);
    AttrOut => AttrOut, |value, reply| reply.send(&value);
    BmapOut => BmapOut, |value, reply| reply.send(&value);
    InitOut => InitOut, |value, reply| reply.send(&value);
    LkOut => LkOut, |value, reply| reply.send(&value);
    LseekOut => LseekOut, |value, reply| reply.send(&value);
    PollOut => PollOut, |value, reply| reply.send(&value);
    StatfsOut => StatfsOut, |value, reply| reply.send(&value);
    StatxOut => StatxOut, |value, reply| reply.send(&value);
    WriteOut => WriteOut, |value, reply| {
        reply.data_len_bytes = value.size.get().into();
        reply.send(&value)
    };
    CopyFileRangeOut => CopyFileRangeOut, |value, reply| {
        reply.data_len_bytes = value.bytes_copied.get();
        reply.send(&value)
    };
    Target => Vec<u8>, |target, reply| reply.bytes(&target);
    XattrOut => XattrReply, |value, reply| match value {
        XattrReply::Size(size) => reply.send(&GetxattrOut { size: size.into(), padding: 0.into() }),
        XattrReply::Bytes(bytes) => reply.bytes(&bytes),
    };
    IoctlOutBytes => IoctlReply, |value, reply| reply.two([value.out.as_bytes(), &value.data]);
}

impl Answer for DataOut {
    /// The number of bytes read, less than the room only at the end of the file.
    type Value = usize;
    type Sink<'a> = &'a [GuestSlice<'a>];
    type Room<'a> = GuestSlices<'a>;
    const SIZE_MAX: Option<u32> = Some(u32::MAX);

    fn make_room<'a>(room: &mut GuestSlices<'a>, reply: &Reply<'a>, size: usize) {
        reply.data_slices(size, room);
    }
    fn sink<'a>(room: &'a mut Self::Room<'_>) -> Self::Sink<'a> {
        room
    }
    fn send(len: usize, _: &Self::Room<'_>, size: usize, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.data(len.min(size))
    }
}

impl Answer for Entries {
    /// A reply without entries is the end of the directory.
    type Value = ();
    type Sink<'a> = &'a mut Dirents;
    type Room<'a> = Dirents;
    /// Entries are gathered in our own memory first.
    const SIZE_MAX: Option<u32> = Some(DATA_LEN_MAX);

    fn make_room(room: &mut Dirents, _: &Reply<'_>, size: usize) {
        room.reset(size);
    }
    fn sink(room: &mut Dirents) -> &mut Dirents {
        room
    }
    fn send((): (), room: &Dirents, _: usize, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.bytes(room.as_bytes())
    }
}

impl Answer for EntriesPlus {
    /// Like [`Entries`]. Each entry with a nodeid counts as one lookup; `.` and `..` have none.
    type Value = ();
    type Sink<'a> = &'a mut DirentsPlus;
    type Room<'a> = DirentsPlus;
    /// Entries are gathered in our own memory first.
    const SIZE_MAX: Option<u32> = Some(DATA_LEN_MAX);

    fn make_room(room: &mut DirentsPlus, _: &Reply<'_>, size: usize) {
        room.0.reset(size);
    }
    fn sink(room: &mut DirentsPlus) -> &mut DirentsPlus {
        room
    }
    fn send((): (), room: &DirentsPlus, _: usize, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.bytes(room.as_bytes())
    }
}
