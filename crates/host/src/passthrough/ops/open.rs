//! OPEN, and what CREATE and TMPFILE share with it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags};
use transom_wire::{
    Handle, NodeId,
    operation::Open,
    ops::{
        init::InitFlags,
        open::{OPEN_KILL_SUIDGID, OpenFlags, OpenOut},
    },
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Context, Serve},
};

/// What of the guest's flags reaches the host whatever the configuration.
const PASSED_ON: OFlags = OFlags::RWMODE.union(OFlags::TRUNC).union(OFlags::SYNC).union(OFlags::DSYNC);

impl Serve<Open> for Passthrough {
    fn serve(&self, call: Call<'_, Open>) -> Result<OpenOut, Errno> {
        let (ctx, nodeid, arg) = (&call.ctx, call.nodeid, &call.arg);
        let flags = OFlags::from_bits_retain(arg.flags.get());
        self.check_open_mode(flags)?;
        let slot = self.handles.reserve()?;
        self.inodes.balance();
        let fd = self.open_for(ctx, nodeid, flags, arg.open_flags.get())?;
        let open_flags = self.open_flags(nodeid, &fd, flags);
        let fh = self.handles.add_file(slot, nodeid, fd)?;
        Ok(open_out(fh, open_flags))
    }
}

impl Passthrough {
    /// Opens an inode that the guest knows for the caller; what `O_TRUNC` empties loses set-id bits and capabilities
    /// first.
    pub(in crate::passthrough) fn open_for(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        flags: OFlags,
        open_flags: u32,
    ) -> Result<OwnedFd, Errno> {
        if !flags.contains(OFlags::TRUNC) {
            return self.open_inode(nodeid, flags);
        }
        let inode = self.inodes.get(nodeid)?;
        if inode.file_type == FileType::RegularFile {
            self.drop_capabilities(&inode.fd)?;
        }
        let _guard = if self.truncation_kills_set_id(ctx, open_flags) { self.kill_set_id(&inode.fd)? } else { None };
        self.open_inode(nodeid, flags)
    }

    /// Whether an open that truncates clears set-id bits.
    ///
    /// A guest without HANDLE_KILLPRIV_V2 leaves that to the host and does not say so. Only root keeps the bits then,
    /// as on the host.
    fn truncation_kills_set_id(&self, ctx: &Context<'_>, open_flags: u32) -> bool {
        if self.has(InitFlags::HANDLE_KILLPRIV_V2) { open_flags & OPEN_KILL_SUIDGID != 0 } else { ctx.uid != 0 }
    }

    /// Errors: EROFS for a mode that could change a read-only share, EINVAL for one that is none.
    pub(in crate::passthrough) fn check_open_mode(&self, flags: OFlags) -> Result<(), Errno> {
        let mode = flags & OFlags::RWMODE;
        if mode == OFlags::RWMODE {
            return Err(Errno::INVAL);
        }
        if mode != OFlags::RDONLY || flags.contains(OFlags::TRUNC) { self.check_writable() } else { Ok(()) }
    }

    /// The flags for the host's file, from those of the guest's.
    ///
    /// `O_APPEND` is not among them: each WRITE says whether it appends, since a program can change that while a file
    /// is open, and what a page cache writes back never does.
    pub(in crate::passthrough) fn host_flags(&self, guest: OFlags) -> OFlags {
        let mut flags = guest & PASSED_ON;
        if self.config.allow_direct_io {
            flags |= guest & OFlags::DIRECT;
        }
        if self.config.preserve_noatime {
            flags |= guest & OFlags::NOATIME;
        }
        // A page that is written in part is first read.
        if self.config.writeback && flags & OFlags::RWMODE == OFlags::WRONLY {
            flags = (flags - OFlags::RWMODE) | OFlags::RDWR;
        }
        flags
    }

    /// Opens an inode that the guest knows.
    pub(in crate::passthrough) fn open_inode(&self, nodeid: NodeId, guest: OFlags) -> Result<OwnedFd, Errno> {
        let flags = self.host_flags(guest);
        match self.inodes.open(nodeid, flags) {
            // An inode that can only grow is not opened for writing without it.
            Err(Errno::PERM) if guest.contains(OFlags::APPEND) => self.inodes.open(nodeid, flags | OFlags::APPEND),
            // Of a file that may be written and not read, the guest's cache cannot complete a page.
            Err(Errno::ACCESS) if guest & OFlags::RWMODE == OFlags::WRONLY && flags.contains(OFlags::RDWR) => {
                self.inodes.open(nodeid, (flags - OFlags::RWMODE) | OFlags::WRONLY)
            }
            outcome => outcome,
        }
    }

    /// What the guest may do with a file that was opened with `guest` flags.
    pub(in crate::passthrough) fn open_flags(&self, nodeid: NodeId, fd: impl AsFd, guest: OFlags) -> OpenFlags {
        let cache = self.config.cache;
        let mut flags = OpenFlags::empty();
        // Linux writes beyond the end of a file that it maps by a request, and fails if that bypasses the cache too
        // (EBUSY).
        if cache.is_direct() && !self.is_taken_for_dax(nodeid, fd) {
            flags |= OpenFlags::DIRECT_IO;
            // The host orders writes to one file by itself. With mappings, the guest has to.
            if !self.config.allow_mmap {
                flags |= OpenFlags::PARALLEL_DIRECT_WRITES;
            }
        } else if self.config.allow_direct_io && guest.contains(OFlags::DIRECT) {
            flags |= OpenFlags::DIRECT_IO;
        } else if cache.keeps_directories() && !cache.is_direct() {
            flags |= OpenFlags::KEEP_CACHE;
        }
        // What is mapped needs no dropping, and Linux 7.2 warns where it would have to.
        if self.dax.as_ref().is_some_and(|dax| dax.has_node(nodeid)) {
            flags |= OpenFlags::KEEP_CACHE;
        }
        // What was not written cannot fail when it is closed; POSIX locks end with a close.
        if guest & OFlags::RWMODE == OFlags::RDONLY && !self.config.posix_lock {
            flags |= OpenFlags::NOFLUSH;
        }
        flags
    }
}

/// The answer to an open.
pub(in crate::passthrough) fn open_out(fh: Handle, flags: OpenFlags) -> OpenOut {
    OpenOut { fh: fh.into(), open_flags: flags.bits().into(), backing_id: 0.into() }
}
