//! OPEN, and the parts that CREATE and TMPFILE share with it.

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

/// Flags of the guest that are always passed on to the host.
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
        self.note_open(fh, nodeid, flags);
        self.note_quota_open(fh);
        Ok(open_out(fh, open_flags))
    }
}

impl Passthrough {
    /// Opens a known inode for the caller. A file that `O_TRUNC` truncates first loses its set-id bits and
    /// capabilities.
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

    /// Returns whether an open that truncates clears set-id bits.
    ///
    /// A guest without HANDLE_KILLPRIV_V2 leaves that to the host and sends no flag for it. Only root then keeps the
    /// bits, as on the host.
    fn truncation_kills_set_id(&self, ctx: &Context<'_>, open_flags: u32) -> bool {
        if self.has(InitFlags::HANDLE_KILLPRIV_V2) { open_flags & OPEN_KILL_SUIDGID != 0 } else { ctx.uid != 0 }
    }

    /// # Errors
    ///
    /// EROFS for an access mode that could change a read-only share, EINVAL for an invalid access mode.
    pub(in crate::passthrough) fn check_open_mode(&self, flags: OFlags) -> Result<(), Errno> {
        let mode = flags & OFlags::RWMODE;
        if mode == OFlags::RWMODE {
            return Err(Errno::INVAL);
        }
        if mode != OFlags::RDONLY || flags.contains(OFlags::TRUNC) { self.check_writable() } else { Ok(()) }
    }

    /// Translates the guest's open flags to those for the host's file.
    ///
    /// `O_APPEND` is not included: each WRITE says whether it appends, since a program can change that while a file is
    /// open, and writeback from a page cache never appends.
    pub(in crate::passthrough) fn host_flags(&self, guest: OFlags) -> OFlags {
        let mut flags = guest & PASSED_ON;
        if self.config.allow_direct_io {
            flags |= guest & OFlags::DIRECT;
        }
        if self.config.preserve_noatime {
            flags |= guest & OFlags::NOATIME;
        }
        // A partly written page is read first.
        if self.config.writeback && flags & OFlags::RWMODE == OFlags::WRONLY {
            flags = (flags - OFlags::RWMODE) | OFlags::RDWR;
        }
        flags
    }

    /// Opens an inode that the guest knows.
    pub(in crate::passthrough) fn open_inode(&self, nodeid: NodeId, guest: OFlags) -> Result<OwnedFd, Errno> {
        let flags = self.host_flags(guest);
        match self.inodes.open(nodeid, flags) {
            // An append-only inode cannot be opened for writing without O_APPEND.
            Err(Errno::PERM) if guest.contains(OFlags::APPEND) => self.inodes.open(nodeid, flags | OFlags::APPEND),
            // If a file may be written but not read, the guest's cache cannot complete a page.
            Err(Errno::ACCESS) if guest & OFlags::RWMODE == OFlags::WRONLY && flags.contains(OFlags::RDWR) => {
                self.inodes.open(nodeid, (flags - OFlags::RWMODE) | OFlags::WRONLY)
            }
            outcome => outcome,
        }
    }

    /// Returns the reply's flags for a file that was opened with `guest` flags.
    pub(in crate::passthrough) fn open_flags(&self, nodeid: NodeId, fd: impl AsFd, guest: OFlags) -> OpenFlags {
        let cache = self.config.cache;
        let mut flags = OpenFlags::empty();
        // Linux sends a request to write past the end of a file that it maps, and fails (EBUSY) if that request
        // bypasses the cache too.
        if cache.is_direct() && !self.is_taken_for_dax(nodeid, fd) {
            flags |= OpenFlags::DIRECT_IO;
            // The host orders writes to one file by itself. With shared mappings, the guest has to.
            if !self.config.allow_mmap {
                flags |= OpenFlags::PARALLEL_DIRECT_WRITES;
            }
        } else if self.config.allow_direct_io && guest.contains(OFlags::DIRECT) {
            flags |= OpenFlags::DIRECT_IO;
        } else if cache.keeps_directories() && !cache.is_direct() {
            flags |= OpenFlags::KEEP_CACHE;
        }
        // A mapped file has no cached pages to drop, and Linux 7.2 warns if it would have to drop them.
        if self.dax.as_ref().is_some_and(|dax| dax.has_node(nodeid)) {
            flags |= OpenFlags::KEEP_CACHE;
        }
        // Closing a file that was not written cannot fail. POSIX locks, though, end with a close.
        if guest & OFlags::RWMODE == OFlags::RDONLY && !self.config.posix_lock {
            flags |= OpenFlags::NOFLUSH;
        }
        flags
    }
}

/// Returns the reply to an open.
pub(in crate::passthrough) fn open_out(fh: Handle, flags: OpenFlags) -> OpenOut {
    OpenOut { fh: fh.into(), open_flags: flags.bits().into(), backing_id: 0.into() }
}
