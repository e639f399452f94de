//! The table: one row for each operation.
//!
//! A row begins with number, name, `(arguments, strings, rest) -> reply`. Then follow, in this order:
//!
//! - `runs`: where the host runs a request, [`Runs`].
//! - `changes`: what a request changes if it succeeds, [`Changed`].
//! - `repeats`: which requests may be sent again after their reply was lost: those that change nothing, and those that
//!   have the same effect if done twice: `always`, `never`, or under a condition. Changes of names are not among
//!   them, except CREATE without O_EXCL: a second UNLINK would remove what somebody has created meanwhile, or fail
//!   because of the effect of the first. FLUSH is not either: a mount answers it itself when its daemon has died,
//!   because the locks are gone with the daemon.
//! - `effect`: what code that keeps track of names, references, open files and locks has to note, [`Effect`]. Unlike
//!   `changes`, it does not say what others may see.
//! - `handles`, `nodeids`: which fields of the arguments name open files and inodes.
//! - `rest_size`, `reply_size`: which fields of the arguments hold the length of the rest and of the reply.
//! - `compat`: the arguments in a session without SETXATTR_EXT.
//!
//! `if any_of(field, bits)` and `none_of(field, bits)` test flags in a field of the arguments;
//! `any_of_except(field, bits, value)` does not hold for one value of the field.
//!
//! Source: `include/uapi/linux/fuse.h` and `fs/fuse/` up to minor 45.

use core::mem::offset_of;

use super::{
    Change, Changed, Condition, Effect, HandleAt, MadeType, Operation, Row, Runs,
    parts::{
        Bytes, DataOut, Entries, EntriesPlus, ExtensionBytes, FileData, Ignored, IoctlOutBytes, ListOf, NameAndTarget,
        Names, NoReply, OneName, ReplyBody, Rest, Target, TwoNames, XattrName, XattrOut, XattrValue,
    },
};
use crate::{
    agent::EXCHANGE,
    attr::{AttrOut, EntryOut},
    linux::{
        FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, IOC_WRITE, O_APPEND, O_EXCL, O_TRUNC, XATTR_CREATE,
        XATTR_REPLACE,
    },
    opcode::operations,
    ops::{
        access::AccessIn,
        bmap::{BmapIn, BmapOut},
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        create::{CreateIn, CreateOut},
        fallocate::FallocateIn,
        flush::FlushIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        fsync::FsyncIn,
        getattr::{GETATTR_FH, GetattrIn},
        init::{InitIn, InitOut},
        interrupt::InterruptIn,
        ioctl::IoctlIn,
        link::LinkIn,
        lk::{LkIn, LkOut},
        lseek::{LseekIn, LseekOut},
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        poll::{PollIn, PollOut},
        read::ReadIn,
        release::ReleaseIn,
        removemapping::{RemovemappingIn, RemovemappingOne},
        rename::{Rename2In, RenameIn},
        setattr::{SetattrIn, SetattrValid},
        setupmapping::SetupmappingIn,
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
        syncfs::SyncfsIn,
        write::{WriteFlags, WriteIn, WriteOut},
        xattr::{GetxattrIn, SetxattrIn, SetxattrInCompat},
    },
};

operations! {
session {
    /// Before minor 36 the arguments end before `flags2`.
    Init = 26, "init" (InitIn, (), ()) -> InitOut {
        runs: TryThenPool, changes: [], repeats: never,
    }
    Destroy = 38, "destroy" ((), (), ()) -> () {
        runs: TryThenPool, changes: [], repeats: never,
    }
}
requests {
    Lookup = 1, "lookup" ((), OneName, ()) -> EntryOut {
        runs: TryThenPool, changes: [], repeats: always,
        effect: LooksUp,
    }
    Forget = 2, "forget" (ForgetIn, (), ()) -> NoReply {
        runs: Inline, changes: [], repeats: never,
        effect: Forgets,
    }
    Getattr = 3, "getattr" (GetattrIn, (), ()) -> AttrOut {
        runs: Inline, changes: [], repeats: always,
        handles: [fh if any_of(getattr_flags, GETATTR_FH)],
    }
    Setattr = 4, "setattr" (SetattrIn, (), ()) -> AttrOut {
        runs: Inline, changes: [Node, Data if any_of(valid, SetattrValid::SIZE.bits())], repeats: always,
        handles: [fh if any_of(valid, SetattrValid::FH.bits())],
    }
    Readlink = 5, "readlink" ((), (), ()) -> Target {
        runs: Inline, changes: [], repeats: always,
    }
    Symlink = 6, "symlink" ((), NameAndTarget, ExtensionBytes) -> EntryOut {
        runs: Inline, changes: [Names], repeats: never,
        effect: Makes(Symlink),
    }
    Mknod = 8, "mknod" (MknodIn, OneName, ExtensionBytes) -> EntryOut {
        runs: Inline, changes: [Names], repeats: never,
        effect: Makes(ByMode mode),
    }
    Mkdir = 9, "mkdir" (MkdirIn, OneName, ExtensionBytes) -> EntryOut {
        runs: Inline, changes: [Names], repeats: never,
        effect: Makes(Directory),
    }
    Unlink = 10, "unlink" ((), OneName, ()) -> () {
        runs: Inline, changes: [Names, Named], repeats: never,
        effect: Removes,
    }
    Rmdir = 11, "rmdir" ((), OneName, ()) -> () {
        runs: Inline, changes: [Names, Named], repeats: never,
        effect: Removes,
    }
    Rename = 12, "rename" (RenameIn, TwoNames, ()) -> () {
        runs: Inline, changes: [Names, NewNames, Named, Replaced], repeats: never,
        effect: Renames,
        nodeids: [newdir],
    }
    Link = 13, "link" (LinkIn, OneName, ()) -> EntryOut {
        runs: Inline, changes: [Names, Argument], repeats: never,
        effect: Makes(SameAs oldnodeid),
        nodeids: [oldnodeid],
    }
    Open = 14, "open" (OpenIn, (), ()) -> OpenOut {
        runs: Inline, changes: [Node if any_of(flags, O_TRUNC), Data if any_of(flags, O_TRUNC)], repeats: always,
        effect: Opens,
    }
    Read = 15, "read" (ReadIn, (), ()) -> DataOut {
        runs: TryThenPool, changes: [], repeats: always,
        handles: [fh],
        reply_size: size,
    }
    /// With O_APPEND a second write would be appended after the first, except for pages of a cache, which have a fixed
    /// position.
    Write = 16, "write" (WriteIn, (), FileData) -> WriteOut {
        runs: TryThenPool, changes: [Node, Data],
        repeats: either(any_of(write_flags, WriteFlags::CACHE.bits()), none_of(flags, O_APPEND)),
        handles: [fh],
        rest_size: size,
    }
    Statfs = 17, "statfs" ((), (), ()) -> StatfsOut {
        runs: Inline, changes: [], repeats: always,
    }
    Release = 18, "release" (ReleaseIn, (), ()) -> () {
        runs: Inline, changes: [], repeats: always,
        effect: Closes,
        handles: [fh],
    }
    Fsync = 20, "fsync" (FsyncIn, (), ()) -> () {
        runs: TryThenPool, changes: [], repeats: always,
        handles: [fh],
    }
    Setxattr = 21, "setxattr" (SetxattrIn, XattrName, XattrValue) -> () {
        runs: Inline, changes: [Node], repeats: none_of(flags, XATTR_CREATE | XATTR_REPLACE),
        rest_size: size,
        compat: SetxattrInCompat,
    }
    Getxattr = 22, "getxattr" (GetxattrIn, XattrName, ()) -> XattrOut {
        runs: Inline, changes: [], repeats: always,
        reply_size: size,
    }
    Listxattr = 23, "listxattr" (GetxattrIn, (), ()) -> XattrOut {
        runs: Inline, changes: [], repeats: always,
        reply_size: size,
    }
    Removexattr = 24, "removexattr" ((), XattrName, ()) -> () {
        runs: Inline, changes: [Node], repeats: never,
    }
    Flush = 25, "flush" (FlushIn, (), ()) -> () {
        runs: Inline, changes: [], repeats: never,
        effect: Flushes,
        handles: [fh],
    }
    Opendir = 27, "opendir" (OpenIn, (), ()) -> OpenOut {
        runs: Inline, changes: [], repeats: always,
        effect: Opens,
    }
    Readdir = 28, "readdir" (ReadIn, (), ()) -> Entries {
        runs: TryThenPool, changes: [], repeats: always,
        handles: [fh],
        reply_size: size,
    }
    Releasedir = 29, "releasedir" (ReleaseIn, (), ()) -> () {
        runs: Inline, changes: [], repeats: always,
        effect: Closes,
        handles: [fh],
    }
    Fsyncdir = 30, "fsyncdir" (FsyncIn, (), ()) -> () {
        runs: Pool, changes: [], repeats: always,
        handles: [fh],
    }
    Getlk = 31, "getlk" (LkIn, (), ()) -> LkOut {
        runs: Inline, changes: [], repeats: always,
        handles: [fh],
    }
    Setlk = 32, "setlk" (LkIn, (), ()) -> () {
        runs: Inline, changes: [], repeats: always,
        effect: Locks,
        handles: [fh],
    }
    Setlkw = 33, "setlkw" (LkIn, (), ()) -> () {
        runs: TryThenThread, changes: [], repeats: always,
        effect: Locks,
        handles: [fh],
    }
    Access = 34, "access" (AccessIn, (), ()) -> () {
        runs: Inline, changes: [], repeats: always,
    }
    /// Without O_EXCL it may open a file that exists, and truncate it.
    Create = 35, "create" (CreateIn, OneName, ExtensionBytes) -> CreateOut {
        runs: Inline, changes: [Names, Entry if any_of(flags, O_TRUNC), EntryData if any_of(flags, O_TRUNC)],
        repeats: none_of(flags, O_EXCL),
        effect: MakesAndOpens,
    }
    Interrupt = 36, "interrupt" (InterruptIn, (), ()) -> NoReply {
        runs: Inline, changes: [], repeats: never,
        effect: Interrupts,
    }
    Bmap = 37, "bmap" (BmapIn, (), ()) -> BmapOut {
        runs: Inline, changes: [], repeats: always,
    }
    /// Only the exchange with an agent waits: the others never return EAGAIN. Its argument is written back and changes
    /// no inode.
    Ioctl = 39, "ioctl" (IoctlIn, (), Bytes) -> IoctlOutBytes {
        runs: TryThenThread, changes: [Node if any_of_except(cmd, IOC_WRITE, EXCHANGE)], repeats: never,
        handles: [fh],
        rest_size: in_size,
        reply_size: out_size,
    }
    Poll = 40, "poll" (PollIn, (), ()) -> PollOut {
        runs: Inline, changes: [], repeats: always,
        handles: [fh],
    }
    /// Replies to a notification that requests data of the guest's cache. This host never sends it, so nothing is
    /// read.
    NotifyReply = 41, "notify_reply" ((), (), ()) -> NoReply {
        runs: Inline, changes: [], repeats: never,
    }
    BatchForget = 42, "batch_forget" (BatchForgetIn, (), ListOf<ForgetOne>) -> NoReply {
        runs: Inline, changes: [], repeats: never,
        effect: Forgets,
        rest_size: count,
    }
    Fallocate = 43, "fallocate" (FallocateIn, (), ()) -> () {
        runs: Pool, changes: [Node, Data],
        repeats: none_of(mode, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE),
        handles: [fh],
    }
    Readdirplus = 44, "readdirplus" (ReadIn, (), ()) -> EntriesPlus {
        runs: TryThenPool, changes: [], repeats: always,
        effect: Lists,
        handles: [fh],
        reply_size: size,
    }
    Rename2 = 45, "rename2" (Rename2In, TwoNames, ()) -> () {
        runs: Inline, changes: [Names, NewNames, Named, Replaced], repeats: never,
        effect: Renames,
        nodeids: [newdir],
    }
    Lseek = 46, "lseek" (LseekIn, (), ()) -> LseekOut {
        runs: Inline, changes: [], repeats: always,
        handles: [fh],
    }
    CopyFileRange = 47, "copy_file_range" (CopyFileRangeIn, (), ()) -> WriteOut {
        runs: Pool, changes: [Argument, ArgumentData], repeats: never,
        handles: [fh_in, fh_out],
        nodeids: [nodeid_out],
    }
    /// `fh` is not a handle: Linux sends `u64::MAX` and refers to the nodeid.
    Setupmapping = 48, "setupmapping" (SetupmappingIn, (), ()) -> () {
        runs: Pool, changes: [], repeats: never,
    }
    Removemapping = 49, "removemapping" (RemovemappingIn, (), ListOf<RemovemappingOne>) -> () {
        runs: Pool, changes: [], repeats: never,
        rest_size: count,
    }
    Syncfs = 50, "syncfs" (SyncfsIn, (), ()) -> () {
        runs: Pool, changes: [], repeats: always,
    }
    /// If it is repeated, the file of the first request is gone with the daemon that created it. The directory does
    /// not change.
    Tmpfile = 51, "tmpfile" (CreateIn, Ignored, ExtensionBytes) -> CreateOut {
        runs: Inline, changes: [], repeats: always,
        effect: OpensNameless,
    }
    Statx = 52, "statx" (StatxIn, (), ()) -> StatxOut {
        runs: Inline, changes: [], repeats: always,
        handles: [fh if any_of(getattr_flags, GETATTR_FH)],
    }
    CopyFileRange64 = 53, "copy_file_range_64" (CopyFileRangeIn, (), ()) -> CopyFileRangeOut {
        runs: Pool, changes: [Argument, ArgumentData], repeats: never,
        handles: [fh_in, fh_out],
        nodeids: [nodeid_out],
    }
}
}
