//! Answers the agent of a guest: its announced requests as if they were done, and every other change with EPERM.
//!
//! The guest's kernel looks a name up before it changes it. While a change is announced, the name looks as it did
//! before the change ([`Role`]). What no longer exists is shown as a placeholder: an entry that is never valid for
//! longer than the request, whose nodeid is known to nobody. Nothing here changes a file of the host.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use transom_wire::{
    Handle, Name, NodeId,
    agent::{AGENT_GID, EXCHANGE_LEN},
    attr::{Attr, AttrOut, EntryOut},
    linux::{O_ACCMODE, O_RDONLY, O_TRUNC, S_IFMT},
    operation::Open,
    ops::{
        ioctl::{IOCTL_DIR, IoctlIn},
        open::{OpenFlags, OpenIn},
    },
};

use super::{Passthrough, inodes::InodeFd};
use crate::{
    Errno,
    replay::{Batch, Change, Kind, Role},
    server::{AgentCall, AgentReply, BlockingMode, Call, Context, Serve},
    sysfd::stat,
};

/// The nodeids of placeholders: below all others except the root's, which begin at 2^32.
static NEXT_PLACEHOLDER: AtomicU32 = AtomicU32::new(2);

/// Number of inodes that are refreshed after changes were lost. Those that the guest does not use are forgotten within
/// moments.
const REFRESHED_MAX: usize = 8192;

impl Passthrough {
    /// Serves an exchange with the agent.
    ///
    /// # Errors
    ///
    /// ENOTTY if nothing is announced or the directory is not the root, EPERM unless the caller is root of the guest
    /// and in the agent's group, EAGAIN under `MustNotBlock` if it would have to wait.
    pub(super) fn exchange(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        handle: Handle,
        arg: &IoctlIn,
        argument: &[u8],
    ) -> Result<Box<[u8; EXCHANGE_LEN]>, Errno> {
        let replays = self.replays.as_ref().ok_or(Errno::NOTTY)?;
        if nodeid != NodeId::ROOT || arg.flags.get() & IOCTL_DIR == 0 {
            return Err(Errno::NOTTY);
        }
        // A session that hides ids shows another uid here, and so has no agent.
        if ctx.uid != 0 || ctx.gid != AGENT_GID {
            return Err(Errno::PERM);
        }
        self.handles.directory(handle)?;
        if replays.is_refresh_due(ctx.pid, handle)
            && let Some(in_use) = self.inodes.known_up_to(REFRESHED_MAX)
        {
            let stale = |(nodeid, file_type)| match file_type {
                FileType::RegularFile => Change::of_file(Kind::Stale, libc::DT_REG, nodeid),
                _ => Change::of_file(Kind::Stale, libc::DT_UNKNOWN, nodeid),
            };
            replays.refresh(in_use.into_iter().map(stale));
        }
        replays.exchange(ctx.pid, handle, argument, ctx.blocking)
    }

    /// Serves a request of the agent's group.
    pub(super) fn replayed(&self, ctx: &Context<'_>, call: AgentCall<'_>) -> Result<AgentReply, Errno> {
        match call {
            AgentCall::Lookup(parent, name) => self.lookup_for_agent(ctx, parent, name),
            AgentCall::Make(parent, name, file_type) => {
                self.swallow(ctx, |batch| batch.make(parent, name.as_bytes(), file_type))?;
                self.made(parent, name, file_type).map(AgentReply::Entry)
            }
            AgentCall::Remove(parent, name, is_directory) => {
                self.swallow(ctx, |batch| batch.remove(parent, name.as_bytes(), is_directory))?;
                if let Some(replays) = &self.replays {
                    replays.names.remove(parent, name.as_bytes());
                }
                Ok(AgentReply::Done)
            }
            AgentCall::Rename(old, new, is_exchange) => {
                let bytes = |(parent, name): (NodeId, Name<'_>)| (parent, name.as_bytes().to_vec());
                let (from, to) = (bytes(old), bytes(new));
                self.swallow(ctx, |batch| batch.rename((from.0, &from.1), (to.0, &to.1), is_exchange))?;
                self.renamed_in_guest((from.0, &from.1), (to.0, &to.1), is_exchange);
                Ok(AgentReply::Done)
            }
            AgentCall::Open(nodeid, arg) => self.open_for_agent(ctx, nodeid, arg),
            AgentCall::Setattr(nodeid, valid) => {
                self.swallow(ctx, |batch| batch.set_attributes(nodeid, valid))?;
                self.true_attributes(nodeid).map(AgentReply::Attributes)
            }
            AgentCall::Getattr(nodeid) => {
                let replays = self.replays.as_ref();
                if replays.and_then(|replays| replays.announced(ctx.pid, |batch| batch.count_link(nodeid)))
                    != Some(true)
                {
                    return Ok(AgentReply::Usual);
                }
                // The guest's kernel counts the link that is gone when its removal is replayed.
                let mut out = self.true_attributes(nodeid)?;
                out.attr.nlink = out.attr.nlink.get().saturating_add(1).into();
                Ok(AgentReply::Attributes(out))
            }
        }
    }

    fn true_attributes(&self, nodeid: NodeId) -> Result<AttrOut, Errno> {
        let fd = self.inodes.get(nodeid)?.fd;
        let stat = stat::statx(&*fd, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
        Ok(self.attr_out(&*fd, &stat))
    }

    /// Notes that the guest's kernel has moved a name, so that a later change finds what it was.
    pub(super) fn renamed_in_guest(&self, old: (NodeId, &[u8]), new: (NodeId, &[u8]), is_exchange: bool) {
        let Some(replays) = &self.replays else { return };
        let names = &replays.names;
        let (moved, replaced) = (names.remove(old.0, old.1), names.remove(new.0, new.1));
        if let Some(moved) = moved {
            names.insert(new.0, new.1, moved);
        }
        if let Some(replaced) = replaced.filter(|_| is_exchange) {
            names.insert(old.0, old.1, replaced);
        }
    }

    /// Takes a change out of what is announced. Errors: EPERM if it is not announced to this caller.
    fn swallow(&self, ctx: &Context<'_>, take: impl FnOnce(&mut Batch) -> bool) -> Result<(), Errno> {
        match self.replays.as_ref().and_then(|replays| replays.announced(ctx.pid, take)) {
            Some(true) => Ok(()),
            Some(false) | None => Err(Errno::PERM),
        }
    }

    fn lookup_for_agent(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<AgentReply, Errno> {
        let Some(replays) = &self.replays else { return Ok(AgentReply::Usual) };
        let name = name.as_bytes();
        let Some(role) = replays.announced(ctx.pid, |batch| batch.role(parent, name)).flatten() else {
            return Ok(AgentReply::Usual);
        };
        let entry = match role {
            Role::New => match self.in_use(ctx, parent, name, replays.names.get(parent, name))? {
                Some(entry) => entry,
                None => return Err(Errno::NOENT),
            },
            Role::Old { file_type } => self.as_before(parent, name, file_type),
            Role::RenamedTo { now, file_type } => match self.now(ctx, now.0, &now.1) {
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                Err(_) => self.as_before(parent, name, file_type),
                Ok(entry) => entry,
            },
            Role::Replaced => {
                let before = replays.names.get(parent, name);
                match self.in_use(ctx, parent, name, before)? {
                    Some(entry) => entry,
                    // The guest has found the file under its new name already.
                    None if before.is_some() && before == self.nodeid_now(ctx, parent, name)? => {
                        return Err(Errno::NOENT);
                    }
                    None if before.is_none() => return Err(Errno::NOENT),
                    None => self.as_before(parent, name, libc::DT_UNKNOWN),
                }
            }
            Role::Changed => {
                let entry = self.now(ctx, parent, name)?;
                replays.announced(ctx.pid, |batch| batch.found(parent, name, entry.nodeid.into()));
                entry
            }
        };
        Ok(AgentReply::Entry(entry))
    }

    /// Looks up what `name` is now on the host.
    fn now(&self, ctx: &Context<'_>, parent: NodeId, name: &[u8]) -> Result<EntryOut, Errno> {
        let dir = self.inodes.get(parent)?;
        self.check_visible(&dir, name)?;
        let fd = self.refer(&dir, name, ctx.blocking)?;
        self.admit_unseen(parent, &dir, name, InodeFd::Owned(fd))
    }

    /// Returns the nodeid that `name` has now, if there is such a name. Errors: EAGAIN under `MustNotBlock`.
    fn nodeid_now(&self, ctx: &Context<'_>, parent: NodeId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        match self.now(ctx, parent, name) {
            Err(Errno::AGAIN) => Err(Errno::AGAIN),
            Err(_) => Ok(None),
            Ok(entry) => {
                let nodeid = entry.nodeid.into();
                self.inodes.forget(nodeid, 1);
                Ok(Some(nodeid))
            }
        }
    }

    /// Returns the entry of `name` if the guest found the file that it is now, as `seen`, and may use it by that name.
    ///
    /// To replay its creation would make a file that is open look deleted, and detach what is mounted on a directory.
    fn in_use(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: &[u8],
        seen: Option<NodeId>,
    ) -> Result<Option<EntryOut>, Errno> {
        let Some(seen) = seen else { return Ok(None) };
        let entry = match self.now(ctx, parent, name) {
            Err(Errno::AGAIN) => return Err(Errno::AGAIN),
            Err(_) => return Ok(None),
            Ok(entry) => entry,
        };
        let nodeid = NodeId::from(entry.nodeid);
        let is_directory = FileType::from_raw_mode(entry.attr.mode.get()) == FileType::Directory;
        if nodeid == seen && (is_directory || self.handles.has_open(nodeid)) {
            return Ok(Some(entry));
        }
        self.inodes.forget(nodeid, 1);
        Ok(None)
    }

    /// Returns the entry of the inode that the guest found as `name`, or a placeholder of `file_type`.
    fn as_before(&self, parent: NodeId, name: &[u8], file_type: u8) -> EntryOut {
        let found = self.replays.as_ref().and_then(|replays| replays.names.get(parent, name));
        let known = found.and_then(|nodeid| Some((nodeid, self.inodes.count_again(nodeid)?)));
        let Some((nodeid, (known_type, ino))) = known else { return placeholder(file_type) };
        let mut attr = Attr { ino: ino.into(), nlink: 0.into(), ..of_type(known_type.as_raw_mode()) };
        if let Ok(inode) = self.inodes.get(nodeid)
            && let Ok(stat) = stat::statx(&*inode.fd, AtFlags::empty(), StatxFlags::BASIC_STATS)
        {
            attr = self.attr(&*inode.fd, &stat);
        }
        // The guest's kernel counts the link that is gone.
        attr.nlink = attr.nlink.get().saturating_add(1).into();
        EntryOut { nodeid: nodeid.into(), attr, ..EntryOut::default() }
    }

    /// Returns the entry of a name whose creation was replayed.
    fn made(&self, parent: NodeId, name: Name<'_>, file_type: FileType) -> Result<EntryOut, Errno> {
        let dir = self.inodes.get(parent)?;
        self.check_visible(&dir, name.as_bytes())?;
        let found = self.refer(&dir, name.as_bytes(), BlockingMode::MayBlock);
        let entry = found.and_then(|fd| self.admit(parent, &dir, name.as_bytes(), InodeFd::Owned(fd)));
        match entry {
            Ok(entry) if FileType::from_raw_mode(entry.attr.mode.get()) == file_type => Ok(entry),
            Ok(entry) => {
                self.inodes.forget(entry.nodeid.into(), 1);
                Ok(placeholder_of(file_type.as_raw_mode()))
            }
            Err(_) => Ok(placeholder_of(file_type.as_raw_mode())),
        }
    }

    /// Opens a file so that the guest drops its pages; without the right to write.
    fn open_for_agent(&self, ctx: &Context<'_>, nodeid: NodeId, mut arg: OpenIn) -> Result<AgentReply, Errno> {
        let flags = arg.flags.get();
        let is_harmless = flags & O_ACCMODE == O_RDONLY && flags & O_TRUNC == 0;
        self.swallow(ctx, |batch| batch.open(nodeid)).or_else(|errno| if is_harmless { Ok(()) } else { Err(errno) })?;
        arg.flags = O_RDONLY.into();
        let call: Call<'_, Open> = Call { ctx: *ctx, nodeid, arg, name: (), rest: (), out: () };
        let mut opened = self.serve(call)?;
        if !self.dax.as_ref().is_some_and(|dax| dax.has_node(nodeid)) {
            let flags = OpenFlags::from_bits_retain(opened.open_flags.get());
            opened.open_flags = (flags - OpenFlags::KEEP_CACHE).bits().into();
        }
        Ok(AgentReply::Opened(opened))
    }
}

/// Returns an entry that stands for a file that is gone; its type is one of `d_type`.
fn placeholder(file_type: u8) -> EntryOut {
    placeholder_of(u32::from(file_type) << 12 & S_IFMT)
}

fn placeholder_of(mode: u32) -> EntryOut {
    let nodeid = loop {
        match NEXT_PLACEHOLDER.fetch_add(1, Relaxed) {
            0 | 1 => {}
            number => break u64::from(number),
        }
    };
    EntryOut { nodeid: nodeid.into(), attr: Attr { ino: nodeid.into(), ..of_type(mode) }, ..EntryOut::default() }
}

/// Returns attributes of which only the type is true; a regular file's if it is unknown.
fn of_type(mode: u32) -> Attr {
    let mode = if mode & S_IFMT == 0 { FileType::RegularFile.as_raw_mode() } else { mode & S_IFMT };
    Attr { mode: (mode | 0o600).into(), nlink: 1.into(), blksize: 4096.into(), ..Attr::default() }
}
