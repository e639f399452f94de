//! Inodes: their contents, lifetime and cost.

use std::collections::BTreeMap;

use transom_host::Errno;
use transom_wire::attr::{Attr, AttrOut, EntryOut};

use super::{Limits, locks::Lock};

/// The root's nodeid.
pub(super) const ROOT: u64 = 1;
/// The type bits of a mode.
pub(super) const TYPE_MASK: u32 = libc::S_IFMT;
/// Permission bits, set-id bits and the sticky bit.
pub(super) const PERMISSIONS: u32 = 0o7777;
/// What an inode counts beside its data.
pub(super) const INODE_BYTES: u64 = 256;

/// All inodes by nodeid; a nodeid is never used again.
pub(super) struct Tree {
    inodes: BTreeMap<u64, Inode>,
    next_nodeid: u64,
    limits: Limits,
    bytes: u64,
    clock: u64,
}

/// An inode.
pub(super) struct Inode {
    pub(super) nodeid: u64,
    /// Type and permissions.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) rdev: u32,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) content: Content,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) locks: Vec<Lock>,
    /// Times that its nodeid was given out and not forgotten.
    pub(super) lookups: u64,
    /// Handles that refer to it.
    pub(super) opens: u32,
    /// It never had a name and may be given one (O_TMPFILE).
    pub(super) is_nameless: bool,
}

/// Seconds and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Time(pub(super) u64, pub(super) u32);

/// What an inode holds.
pub(super) enum Content {
    File(Vec<u8>),
    Directory(Directory),
    Symlink(Vec<u8>),
    /// A device, socket or pipe.
    Special,
}

/// Names, by name and by their place in the stream.
pub(super) struct Directory {
    /// The directory above; of the root, itself.
    pub(super) parent: u64,
    pub(super) names: BTreeMap<Vec<u8>, Name>,
    /// In the order of their making; a place is never used again.
    pub(super) order: BTreeMap<u64, Vec<u8>>,
    pub(super) next_place: u64,
}

/// A name's inode and its place in the stream.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub(super) nodeid: u64,
    pub(super) place: u64,
}

/// Places below are `.` and `..`.
const PLACE_FIRST: u64 = 3;

impl Tree {
    pub(super) fn new(limits: Limits) -> Self {
        let mut tree = Self { inodes: BTreeMap::new(), next_nodeid: ROOT, limits, bytes: 0, clock: 0 };
        tree.add(libc::S_IFDIR | 0o755, (0, 0), Content::Directory(Directory::new(ROOT))).expect("there is room");
        tree.inode_mut(ROOT).expect("it was just added").nlink = 2;
        tree
    }

    /// The present: each call is one tick later.
    pub(super) fn now(&mut self) -> Time {
        self.clock += 1;
        Time(self.clock, 0)
    }

    /// A new inode without a name. Errors: ENOSPC.
    pub(super) fn add(&mut self, mode: u32, (uid, gid): (u32, u32), content: Content) -> Result<u64, Errno> {
        if self.inodes.len() >= self.limits.inodes {
            return Err(Errno::NOSPC);
        }
        let size = match &content {
            Content::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        self.charge(INODE_BYTES + size)?;
        let now = self.now();
        let nodeid = self.next_nodeid;
        self.next_nodeid += 1;
        let inode = Inode {
            nodeid,
            mode,
            uid,
            gid,
            nlink: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            content,
            xattrs: BTreeMap::new(),
            locks: Vec::new(),
            lookups: 0,
            opens: 0,
            is_nameless: false,
        };
        self.inodes.insert(nodeid, inode);
        Ok(nodeid)
    }

    /// Errors: ENOENT for a nodeid that is not there.
    pub(super) fn inode(&self, nodeid: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&nodeid).ok_or(Errno::NOENT)
    }

    /// As [`Tree::inode`].
    pub(super) fn inode_mut(&mut self, nodeid: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&nodeid).ok_or(Errno::NOENT)
    }

    /// Errors: ENOENT, ENOTDIR.
    pub(super) fn directory(&self, nodeid: u64) -> Result<&Directory, Errno> {
        match &self.inode(nodeid)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// As [`Tree::directory`].
    pub(super) fn directory_mut(&mut self, nodeid: u64) -> Result<&mut Directory, Errno> {
        match &mut self.inode_mut(nodeid)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// What a file holds. Errors: ENOENT, EISDIR, EINVAL.
    pub(super) fn file_mut(&mut self, nodeid: u64) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.inode_mut(nodeid)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Counts `bytes` more. Errors: ENOSPC.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.limits.bytes - self.bytes {
            return Err(Errno::NOSPC);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Counts `bytes` fewer.
    pub(super) fn discharge(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// Drops an inode that nobody can reach any more.
    pub(super) fn drop_unused(&mut self, nodeid: u64) {
        let Ok(inode) = self.inode(nodeid) else { return };
        if nodeid == ROOT || inode.nlink > 0 || inode.lookups > 0 || inode.opens > 0 {
            return;
        }
        let size = match &inode.content {
            Content::File(bytes) | Content::Symlink(bytes) => bytes.len() as u64,
            Content::Directory(_) | Content::Special => 0,
        };
        let xattrs: usize = inode.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.discharge(INODE_BYTES + size + xattrs as u64);
        self.inodes.remove(&nodeid);
    }

    /// Forgets every lookup and every lock of every inode.
    pub(super) fn end_session(&mut self) {
        let nodeids: Vec<u64> = self.inodes.keys().copied().collect();
        for nodeid in nodeids {
            if let Ok(inode) = self.inode_mut(nodeid) {
                inode.lookups = 0;
                inode.opens = 0;
                inode.locks.clear();
            }
            self.drop_unused(nodeid);
        }
    }

    /// Gives a nodeid out.
    pub(super) fn entry(&mut self, nodeid: u64) -> Result<EntryOut, Errno> {
        let inode = self.inode_mut(nodeid)?;
        inode.lookups = inode.lookups.saturating_add(1);
        Ok(EntryOut { nodeid: nodeid.into(), attr: inode.attr(), ..EntryOut::default() })
    }

    pub(super) fn attr_out(&self, nodeid: u64) -> Result<AttrOut, Errno> {
        Ok(AttrOut { attr: self.inode(nodeid)?.attr(), ..AttrOut::default() })
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn inodes(&self) -> impl Iterator<Item = &Inode> {
        self.inodes.values()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    pub(super) fn lookup_count(&self) -> u64 {
        self.inodes.values().filter(|inode| inode.nodeid != ROOT).map(|inode| inode.lookups).sum()
    }
}

impl Inode {
    pub(super) fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }

    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::File(bytes) | Content::Symlink(bytes) => bytes.len() as u64,
            Content::Directory(directory) => directory.names.len() as u64,
            Content::Special => 0,
        }
    }

    /// As `d_type` has it.
    pub(super) fn dirent_type(&self) -> u32 {
        (self.mode & TYPE_MASK) >> 12
    }

    /// Clears set-user-id, and set-group-id where the group may execute.
    pub(super) fn kill_suidgid(&mut self) {
        self.mode &= !libc::S_ISUID;
        if self.mode & libc::S_IXGRP != 0 {
            self.mode &= !libc::S_ISGID;
        }
    }

    pub(super) fn attr(&self) -> Attr {
        Attr {
            ino: self.nodeid.into(),
            size: self.size().into(),
            blocks: self.size().div_ceil(512).into(),
            atime: self.atime.0.into(),
            mtime: self.mtime.0.into(),
            ctime: self.ctime.0.into(),
            atimensec: self.atime.1.into(),
            mtimensec: self.mtime.1.into(),
            ctimensec: self.ctime.1.into(),
            mode: self.mode.into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            rdev: self.rdev.into(),
            blksize: 4096.into(),
            flags: 0.into(),
        }
    }
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        Self { parent, names: BTreeMap::new(), order: BTreeMap::new(), next_place: PLACE_FIRST }
    }
}
