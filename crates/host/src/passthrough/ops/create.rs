//! CREATE.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use transom_wire::{
    NodeId,
    attr::EntryOut,
    operation::Create,
    ops::create::{CreateIn, CreateOut},
};

use crate::{
    Errno,
    passthrough::{
        Passthrough,
        creator::{permissions, remove_again},
        gate::Stopwatch,
        inodes::{Inode, InodeFd},
        ops::open::open_out,
    },
    server::{BlockingMode, Call, Context, Serve},
    sysfd::{path, stat},
};

/// How often a name may appear and vanish during one request before the guest is told to look it up again.
const RACES_MAX: usize = 16;

impl Serve<Create> for Passthrough {
    fn serve(&self, call: Call<'_, Create>) -> Result<CreateOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
        self.check_writable()?;
        let flags = OFlags::from_bits_retain(arg.flags.get());
        self.check_open_mode(flags)?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        self.check_creatable(&dir, name.as_bytes())?;
        let slot = self.handles.reserve()?;
        self.inodes.balance();
        let (entry, fd) = self.create_or_open(ctx, parent, &dir, name.as_bytes(), arg)?;
        let nodeid = NodeId::from(entry.nodeid);
        let open_flags = self.open_flags(nodeid, &fd, flags);
        let fh = self.handles.add_file(slot, nodeid, fd).inspect_err(|_| self.forget(nodeid, 1))?;
        self.note_open(fh, nodeid, flags);
        self.note_quota_open(fh);
        Ok(CreateOut { entry, open: open_out(fh, open_flags) })
    }
}

impl Passthrough {
    /// Creates the file for the caller. Without `O_EXCL`, opens an existing file of the caller's own as OPEN would.
    ///
    /// The guest believed that the name was absent, so it has checked no permission on a file, and does not check
    /// after the reply. A file that somebody else has created meanwhile is therefore not opened with the daemon's
    /// rights. After ESTALE, Linux looks the name up again and checks the result, but only once: without the exception
    /// for the caller's own files, two machines that create and remove one file would see that error.
    ///
    /// # Errors
    ///
    /// EEXIST with `O_EXCL`, ESTALE for an existing file that may not be opened.
    fn create_or_open(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        arg: &CreateIn,
    ) -> Result<(EntryOut, OwnedFd), Errno> {
        let flags = OFlags::from_bits_retain(arg.flags.get());
        if self.has_made(ctx, dir, name)? {
            return self.open_made(ctx, parent, dir, name, arg);
        }
        for _ in 0..RACES_MAX {
            match self.create_new(ctx, dir, name, arg) {
                Ok(fd) => {
                    self.journal_step("done");
                    self.label(ctx, &fd).inspect_err(|_| remove_again(dir, name, AtFlags::empty()))?;
                    let inode_fd = match self.path_fd_of_new(&fd) {
                        Some(path_fd) => InodeFd::Owned(path_fd),
                        None => InodeFd::Borrowed(fd.as_fd()),
                    };
                    let entry = self.admit(parent, dir, name, inode_fd)?;
                    return Ok((entry, fd));
                }
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(errno) => return Err(errno),
            }
            let entry = match self.entry_of(parent, dir, name, BlockingMode::MayBlock, &mut Stopwatch::default()) {
                Err(Errno::NOENT) => continue,
                entry => entry?,
            };
            let nodeid = NodeId::from(entry.nodeid);
            if !owner_may_open(ctx, &entry, flags) {
                self.forget(nodeid, 1);
                return Err(Errno::STALE);
            }
            match self.open_for(ctx, nodeid, flags, arg.open_flags.get()) {
                Ok(fd) if flags.contains(OFlags::TRUNC) => {
                    // Linux takes the size from the reply.
                    let attr = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY).map(|stat| self.attr(&fd, &stat));
                    let attr = attr.inspect_err(|_| self.forget(nodeid, 1))?;
                    return Ok((EntryOut { attr, ..entry }, fd));
                }
                Ok(fd) => return Ok((entry, fd)),
                Err(errno) => {
                    self.forget(nodeid, 1);
                    // Otherwise the file is gone again.
                    if !matches!(errno, Errno::NOENT | Errno::STALE) {
                        return Err(errno);
                    }
                }
            }
        }
        Err(Errno::STALE)
    }

    /// Opens the file that this request has made before its process died, with whatever permissions it has.
    fn open_made(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        arg: &CreateIn,
    ) -> Result<(EntryOut, OwnedFd), Errno> {
        let entry = self.entry_of(parent, dir, name, BlockingMode::MayBlock, &mut Stopwatch::default())?;
        let nodeid = NodeId::from(entry.nodeid);
        let opened = self.open_inode(nodeid, OFlags::from_bits_retain(arg.flags.get()) - OFlags::TRUNC);
        let labelled = opened.and_then(|fd| self.label(ctx, &fd).map(|()| fd));
        let fd = labelled.inspect_err(|_| self.forget(nodeid, 1))?;
        Ok((entry, fd))
    }

    /// Opens a file that was created just now as `fd` once more, for the inode to keep, if the guest most likely
    /// removes it soon: then neither its handle is needed nor another descriptor.
    fn path_fd_of_new(&self, fd: &OwnedFd) -> Option<OwnedFd> {
        let pays = self.journal.is_none() && self.inodes.expects_removal();
        if pays { self.proc_fds.reopen(fd, OFlags::PATH).ok() } else { None }
    }

    fn create_new(&self, ctx: &Context<'_>, dir: &Inode, name: &[u8], arg: &CreateIn) -> Result<OwnedFd, Errno> {
        let flags = self.host_flags(OFlags::from_bits_retain(arg.flags.get())) - OFlags::TRUNC;
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.inodes.with_room(|| {
            let _creator = self.creator(ctx, arg.umask.get())?;
            path::open_beneath(&dir.fd, name, flags, permissions(arg.mode.get()))
        })
    }
}

/// Returns whether the entry is a regular file that the caller owns, as the guest sees owners, and may open with
/// `flags` as its owner.
///
/// Groups, access control lists and capabilities may allow more, which only the guest can determine. They do not
/// revoke what the owner's bits allow.
fn owner_may_open(ctx: &Context<'_>, entry: &EntryOut, flags: OFlags) -> bool {
    let mode = flags & OFlags::RWMODE;
    let reads = mode != OFlags::WRONLY;
    let writes = mode != OFlags::RDONLY || flags.contains(OFlags::TRUNC);
    let granted = Mode::from_raw_mode(entry.attr.mode.get());
    let is_granted = (!reads || granted.contains(Mode::RUSR)) && (!writes || granted.contains(Mode::WUSR));
    FileType::from_raw_mode(entry.attr.mode.get()) == FileType::RegularFile
        && entry.attr.uid.get() == ctx.uid
        && is_granted
}
