//! What the server asks of a file system: one method for each operation.
//!
//! Methods are called from many threads at once. Names are checked, structures are copies that the guest cannot change
//! any more, file data are buffers that it can. An `Err` is the errno that the guest sees. A method without a body of its
//! own answers ENOSYS, after which Linux does not ask again.

use transom_wire::{
    Handle, Name, NodeId, Unique,
    attr::{AttrOut, EntryOut},
    ops::{
        copy_file_range::CopyFileRangeIn,
        create::CreateIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        fsync::FsyncIn,
        init::InitFlags,
        ioctl::{IoctlIn, IoctlOut},
        lk::{FileLock, LkIn},
        lseek::LseekIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        removemapping::RemovemappingOne,
        setattr::{SetattrIn, SetattrValid},
        setupmapping::SetupmappingIn,
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
        write::WriteIn,
        xattr::SetxattrIn,
    },
};

use super::{Context, Dirents, DirentsPlus, GuestSlice};
use crate::Errno;

/// What the guest offers with INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitOffer {
    /// The minor version of the session.
    pub minor: u32,
    /// The features that the guest knows.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
}

/// What the file system answers to INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitAnswer {
    /// The features wanted; those that the guest did not offer are dropped.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
    /// Requests in flight that nobody waits for.
    pub max_background: u16,
    /// From how many of these on the guest holds back.
    pub congestion_threshold: u16,
    /// Bytes of data in one WRITE.
    pub max_write: u32,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
    /// Pages of data in one request.
    pub max_pages: u16,
    /// log2 of the alignment of mappings; 0 without a window.
    pub map_alignment: u16,
}

/// What ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// DESTROY: the driver is done.
    Destroy,
    /// INIT: another driver begins, and nothing is known of the one before.
    Init,
    /// The transport: the device was reset, or is gone.
    Reset,
}

/// A value or a list of extended attributes, or its size where the guest asked for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrReply {
    /// Bytes that the value or list has.
    Size(u32),
    /// The value, or the names, each with a NUL.
    Bytes(Vec<u8>),
}

/// What IOCTL answers.
#[derive(Debug, Clone, Default)]
pub struct IoctlReply {
    /// The result.
    pub out: IoctlOut,
    /// What the request writes to its argument, at most `out_size` bytes.
    pub data: Vec<u8>,
}

/// A file system that a [`Server`](super::Server) serves.
#[expect(unused_variables, reason = "the names of the arguments are documentation")]
#[expect(missing_docs, reason = "an operation is documented by FUSE; what is particular is said at the method")]
pub trait FileSystem: Send + Sync {
    /// Begins a session; nothing of an earlier one is left.
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno>;

    /// Ends the session: all inodes, handles, locks and mappings are released. No request is in progress.
    fn destroy(&self, end: End);

    /// An answer with nodeid 0 lets the guest remember the absence for `entry_valid`.
    fn lookup(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno>;

    /// Never fails; an unknown inode or too large a count is ignored.
    fn forget(&self, nodeid: NodeId, nlookup: u64);

    fn getattr(&self, ctx: &Context<'_>, nodeid: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno>;

    /// `arg.fh` counts where `valid` has FH.
    fn setattr(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        valid: SetattrValid,
        arg: &SetattrIn,
    ) -> Result<AttrOut, Errno> {
        Err(Errno::NOSYS)
    }

    /// The target, without a NUL.
    fn readlink(&self, ctx: &Context<'_>, nodeid: NodeId) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOSYS)
    }

    /// `target` has 1 to 4095 bytes.
    fn symlink(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, target: &[u8]) -> Result<EntryOut, Errno> {
        Err(Errno::NOSYS)
    }

    fn mknod(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MknodIn) -> Result<EntryOut, Errno> {
        Err(Errno::NOSYS)
    }

    fn mkdir(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MkdirIn) -> Result<EntryOut, Errno> {
        Err(Errno::NOSYS)
    }

    fn unlink(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn rmdir(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// RENAME and RENAME2; `flags` are those of renameat2(2), unchecked.
    fn rename(
        &self,
        ctx: &Context<'_>,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn link(&self, ctx: &Context<'_>, old: NodeId, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        Err(Errno::NOSYS)
    }

    fn open(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        Err(Errno::NOSYS)
    }

    /// Fills `data` from its beginning and returns the bytes read; fewer than `data` holds only at the end of the file.
    fn read(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &ReadIn, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    /// Writes `data`, which has `arg.size` bytes, and returns the bytes written.
    fn write(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &WriteIn, data: &[GuestSlice<'_>]) -> Result<u32, Errno> {
        Err(Errno::NOSYS)
    }

    fn statfs(&self, ctx: &Context<'_>, nodeid: NodeId) -> Result<StatfsOut, Errno> {
        Err(Errno::NOSYS)
    }

    fn release(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn fsync(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// `arg.setxattr_flags` is 0 where the session has no SETXATTR_EXT. `name` has no NUL.
    fn setxattr(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        name: &[u8],
        value: &[u8],
        arg: &SetxattrIn,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// `size` 0 asks for the size of the value; a longer value is ERANGE.
    fn getxattr(&self, ctx: &Context<'_>, nodeid: NodeId, name: &[u8], size: u32) -> Result<XattrReply, Errno> {
        Err(Errno::NOSYS)
    }

    /// `size` 0 asks for the size of the list; a longer list is ERANGE.
    fn listxattr(&self, ctx: &Context<'_>, nodeid: NodeId, size: u32) -> Result<XattrReply, Errno> {
        Err(Errno::NOSYS)
    }

    fn removexattr(&self, ctx: &Context<'_>, nodeid: NodeId, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn flush(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &FlushIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn opendir(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        Err(Errno::NOSYS)
    }

    /// An empty answer is the end of the directory; `arg.size` is already the room that `entries` has.
    fn readdir(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &ReadIn, entries: &mut Dirents) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// As [`FileSystem::readdir`]; each entry with a nodeid counts as one lookup, `.` and `..` have none.
    fn readdirplus(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        arg: &ReadIn,
        entries: &mut DirentsPlus,
    ) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn releasedir(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn fsyncdir(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The lock that is in the way of `arg.lk`, or one of type F_UNLCK.
    fn getlk(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &LkIn) -> Result<FileLock, Errno> {
        Err(Errno::NOSYS)
    }

    /// EAGAIN where another lock is in the way.
    fn setlk(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &LkIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// Waits for the lock; EINTR after [`FileSystem::interrupt`]. Under `Patience::Try` as [`FileSystem::setlk`].
    fn setlkw(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &LkIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn access(&self, ctx: &Context<'_>, nodeid: NodeId, mask: u32) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn create(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &CreateIn,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        Err(Errno::NOSYS)
    }

    /// Wakes the request `unique` if it waits for a lock; a request that is not there is ignored.
    fn interrupt(&self, unique: Unique) {}

    /// Wakes every request that waits for a lock or for the front end: the session or the transport is about to end.
    /// Called again while these are waited for.
    fn interrupt_all(&self) {}

    fn fallocate(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &FallocateIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// The new offset, in bytes.
    fn lseek(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &LseekIn) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// The bytes copied; never more than `arg.len`.
    fn copy_file_range(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &CopyFileRangeIn) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    fn setupmapping(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &SetupmappingIn) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn removemapping(&self, ctx: &Context<'_>, nodeid: NodeId, ranges: &[RemovemappingOne]) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    fn syncfs(&self, ctx: &Context<'_>, nodeid: NodeId) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// A file without a name in `parent`, open.
    fn tmpfile(&self, ctx: &Context<'_>, parent: NodeId, arg: &CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        Err(Errno::NOSYS)
    }

    fn statx(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &StatxIn) -> Result<StatxOut, Errno> {
        Err(Errno::NOSYS)
    }

    /// `data` is what the request reads from its argument.
    fn ioctl(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &IoctlIn, data: &[u8]) -> Result<IoctlReply, Errno> {
        Err(Errno::NOSYS)
    }
}
