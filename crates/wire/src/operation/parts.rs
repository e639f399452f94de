//! Types for the columns of the table: what follows the arguments of a request, and the body of a reply.
//!
//! A structure of fixed length stands for itself. The types here stand for parts without a fixed length: they hold no
//! bytes, and each side defines once how it reads or writes them.

use core::mem::offset_of;

use super::{RestKind, Shape};
use crate::{
    attr::{AttrOut, EntryOut},
    limits::SYMLINK_LEN_MAX,
    ops::{
        bmap::BmapOut, copy_file_range::CopyFileRangeOut, create::CreateOut, forget::ForgetOne, init::InitOut,
        ioctl::IoctlOut, lk::LkOut, lseek::LseekOut, open::OpenOut, poll::PollOut, removemapping::RemovemappingOne,
        statfs::StatfsOut, statx::StatxOut, write::WriteOut, xattr::GetxattrOut,
    },
};

/// Strings that follow the arguments, each with a NUL.
pub trait Names {
    /// How many there are.
    const COUNT: usize;
}

/// One component of a path.
#[derive(Debug, Clone, Copy)]
pub struct OneName;
/// Two components of paths.
#[derive(Debug, Clone, Copy)]
pub struct TwoNames;
/// One component of a path, and the target of a symbolic link.
#[derive(Debug, Clone, Copy)]
pub struct NameAndTarget;
/// The name of an extended attribute.
#[derive(Debug, Clone, Copy)]
pub struct XattrName;
/// A string without a meaning: Linux sends `/` with TMPFILE.
#[derive(Debug, Clone, Copy)]
pub struct Ignored;

impl Names for () {
    const COUNT: usize = 0;
}
impl Names for OneName {
    const COUNT: usize = 1;
}
impl Names for TwoNames {
    const COUNT: usize = 2;
}
impl Names for NameAndTarget {
    const COUNT: usize = 2;
}
impl Names for XattrName {
    const COUNT: usize = 1;
}
impl Names for Ignored {
    const COUNT: usize = 1;
}

/// What follows the arguments and the names.
pub trait Rest {
    /// The kind.
    const KIND: RestKind;
}

/// Security contexts and the supplementary group, each optional: [`Extensions`](crate::extension::Extensions).
#[derive(Debug, Clone, Copy)]
pub struct ExtensionBytes;
/// Bytes that are copied with the request.
#[derive(Debug, Clone, Copy)]
pub struct Bytes;
/// The value of an extended attribute, of at most 65536 bytes.
#[derive(Debug, Clone, Copy)]
pub struct XattrValue;
/// File data, which the host leaves in the driver's buffers.
#[derive(Debug, Clone, Copy)]
pub struct FileData;
/// Structures of one type.
#[derive(Debug, Clone, Copy)]
pub struct ListOf<T>(core::marker::PhantomData<T>);

impl Rest for () {
    const KIND: RestKind = RestKind::None;
}
impl Rest for ExtensionBytes {
    const KIND: RestKind = RestKind::Extensions;
}
impl Rest for Bytes {
    const KIND: RestKind = RestKind::Bytes;
}
impl Rest for XattrValue {
    const KIND: RestKind = RestKind::Bytes;
}
impl Rest for FileData {
    const KIND: RestKind = RestKind::FileData;
}
impl Rest for ListOf<ForgetOne> {
    const KIND: RestKind = RestKind::List { item_len: size_of::<ForgetOne>() };
}
impl Rest for ListOf<RemovemappingOne> {
    const KIND: RestKind = RestKind::List { item_len: size_of::<RemovemappingOne>() };
}

/// What follows the header of a reply without an error.
pub trait ReplyBody {
    /// Its length.
    const SHAPE: Shape;
    /// Offset of the inode that it names, in bytes.
    const NODEID_AT: Option<usize> = None;
    /// Offset of the open file that it names, in bytes.
    const HANDLE_AT: Option<usize> = None;
    /// Offset of its attributes, in bytes.
    const ATTR_AT: Option<usize> = None;
}

/// No reply at all, not even an error.
#[derive(Debug, Clone, Copy)]
pub struct NoReply;
/// File data, which the host reads into the driver's buffers.
#[derive(Debug, Clone, Copy)]
pub struct DataOut;
/// Entries of READDIR: [`Dirent`](crate::dirent::Dirent).
#[derive(Debug, Clone, Copy)]
pub struct Entries;
/// Entries of READDIRPLUS: [`DirentPlus`](crate::dirent::DirentPlus), each of which may name an inode.
#[derive(Debug, Clone, Copy)]
pub struct EntriesPlus;
/// The target of a symbolic link, without a NUL.
#[derive(Debug, Clone, Copy)]
pub struct Target;
/// An attribute's value or the list of names, or [`GetxattrOut`] if the request has no room for data.
#[derive(Debug, Clone, Copy)]
pub struct XattrOut;
/// [`IoctlOut`], then bytes.
#[derive(Debug, Clone, Copy)]
pub struct IoctlOutBytes;

macro_rules! fixed {
    ($($reply:ty $(, $id:ident = $at:expr)*;)*) => {
        $(impl ReplyBody for $reply {
            const SHAPE: Shape = Shape::Fixed(size_of::<$reply>());
            $(const $id: Option<usize> = Some($at);)*
        })*
    };
}

fixed! {
    ();
    EntryOut, NODEID_AT = offset_of!(EntryOut, nodeid), ATTR_AT = offset_of!(EntryOut, attr);
    OpenOut, HANDLE_AT = offset_of!(OpenOut, fh);
    CreateOut, NODEID_AT = offset_of!(CreateOut, entry.nodeid), HANDLE_AT = offset_of!(CreateOut, open.fh),
        ATTR_AT = offset_of!(CreateOut, entry.attr);
    AttrOut, ATTR_AT = offset_of!(AttrOut, attr);
    BmapOut;
    CopyFileRangeOut;
    InitOut;
    LkOut;
    LseekOut;
    PollOut;
    StatfsOut;
    StatxOut;
    WriteOut;
}

impl ReplyBody for NoReply {
    const SHAPE: Shape = Shape::None;
}
impl ReplyBody for DataOut {
    const SHAPE: Shape = Shape::UpTo { head_len: 0 };
}
impl ReplyBody for Entries {
    const SHAPE: Shape = Shape::UpTo { head_len: 0 };
}
impl ReplyBody for EntriesPlus {
    const SHAPE: Shape = Shape::UpTo { head_len: 0 };
}
impl ReplyBody for Target {
    const SHAPE: Shape = Shape::Text { len_max: SYMLINK_LEN_MAX };
}
impl ReplyBody for XattrOut {
    const SHAPE: Shape = Shape::UpToOr { fixed_len: size_of::<GetxattrOut>() };
}
impl ReplyBody for IoctlOutBytes {
    const SHAPE: Shape = Shape::UpTo { head_len: size_of::<IoctlOut>() };
}
