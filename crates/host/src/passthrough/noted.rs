//! Writes the journal: what requests give to the guest and take from it.
//!
//! Which column of the table leads to which record is decided here. What ends is recorded before it ends: the request
//! is served again after a death, and ends the rest then. A descriptor's number is never in the log after it was
//! closed, since it may be that of another file by then.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::fs::FileType;
use transom_wire::{
    Handle, NodeId, Opcode,
    ids::LockOwner,
    operation::Effect,
    ops::{
        flush::FlushIn,
        init::InitFlags,
        lk::LkIn,
        release::{RELEASE_FLUSH, ReleaseIn},
        rename::Rename2In,
    },
};
use zerocopy::FromBytes;

use super::{Passthrough, intents::undecided};
use crate::{
    Errno,
    journal::{Intent, Record},
    locks::words::Wish,
    server::Noted,
    sysfd::ofd::LockKind,
};

/// What a request that is served again after a death needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// It has the same effect as once, or its changes of the session are undone before.
    Repeat,
    /// Its own code looks at the host: see [`super::intents`].
    Look,
    /// Nobody can find out whether it was done.
    Undecidable,
}

/// Returns what a request needs when it is served again.
fn again(request: &Noted<'_>) -> Again {
    if request.row.repeats.holds(request.args) {
        return Again::Repeat;
    }
    match request.row.effect {
        Effect::Makes(_) | Effect::MakesAndOpens | Effect::Removes | Effect::Renames => return Again::Look,
        Effect::Forgets | Effect::Flushes | Effect::Interrupts => return Again::Repeat,
        _ => {}
    }
    // The same bytes at the same place, and the same flags of a file.
    const SAME: [Opcode; 3] = [Opcode::CopyFileRange, Opcode::CopyFileRange64, Opcode::Ioctl];
    match request.row.opcode {
        opcode if SAME.contains(&opcode) => Again::Repeat,
        // An append.
        Opcode::Write => Again::Look,
        _other => Again::Undecidable,
    }
}

impl Passthrough {
    /// Records what a request is about to end, or to do without a trace. Errors: EIO.
    pub(super) fn noted_before(&self, request: &Noted<'_>) -> Result<(), Errno> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if again(request) == Again::Undecidable {
            if journal.earlier(request.unique.0).is_some() {
                return Err(undecided(journal));
            }
            journal.intend(request.unique.0, &Intent::Other);
        }
        let end_owner = |owner| journal.append(&Record::EndOwner { nodeid: request.nodeid.0, owner });
        match request.row.effect {
            Effect::Closes => {
                let Some(arg) = parse::<ReleaseIn>(request) else { return Ok(()) };
                if arg.release_flags.get() & RELEASE_FLUSH != 0 {
                    end_owner(arg.lock_owner.get());
                }
                journal.append(&Record::Close { fh: arg.fh.get() });
            }
            Effect::Flushes if self.locks.is_some() => {
                parse::<FlushIn>(request).into_iter().for_each(|arg| end_owner(arg.lock_owner.get()));
            }
            // The owner's descriptor is closed with its last lock.
            Effect::Locks => {
                let Some(arg) = parse::<LkIn>(request) else { return Ok(()) };
                if Wish::read(&arg).is_ok_and(|wish| !wish.is_flock && wish.kind.is_none() && wish.range.is_all()) {
                    end_owner(arg.owner.get());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records what a request has given to the guest or changed.
    pub(super) fn noted_after(&self, request: &Noted<'_>, nodeid: Option<NodeId>, handle: Option<Handle>) {
        let Some(journal) = &self.journal else { return };
        let unique = request.unique.0;
        let names = request.names.map(|name| name.map_or(&[][..], |name| name.as_bytes()));
        // An absent name has the number 0.
        if let Some(nodeid) = nodeid.filter(|&nodeid| nodeid.0 != 0 && nodeid != NodeId::ROOT) {
            let name = if request.row.effect == Effect::OpensNameless { &[][..] } else { names[0] };
            let handle = self.inodes.handle(self.aliases.own(nodeid));
            let (nodeid, parent) = (nodeid.0, request.nodeid.0);
            journal.append(&Record::Look { unique, nodeid, count: 1, parent, name, handle });
        }
        if let Some((fh, (fd, file_type))) = handle.and_then(|fh| Some((fh, self.descriptor_of(fh)?))) {
            let nodeid = nodeid.unwrap_or(request.nodeid).0;
            let is_directory = file_type == FileType::Directory;
            journal.append(&Record::Open { unique, nodeid, fh: fh.0, fd: fd as u64, is_directory });
        }
        match request.row.effect {
            Effect::Removes => journal.append(&Record::Remove { parent: request.nodeid.0, name: names[0] }),
            Effect::Renames => {
                // RENAME has the first field of RENAME2 alone.
                let flags = parse::<Rename2In>(request).map_or(0, |arg| arg.flags.get());
                let new_dir = request.args.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                let (parent, new_parent) = (request.nodeid.0, self.aliases.guests(NodeId(new_dir)).0);
                let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
                journal.append(&Record::Rename { parent, name: names[0], new_parent, new_name: names[1], is_exchange });
            }
            Effect::Locks => self.noted_lock(request),
            _ => {}
        }
    }

    fn noted_lock(&self, request: &Noted<'_>) {
        let (Some(journal), Some(locks), Some(arg)) = (&self.journal, &self.locks, parse::<LkIn>(request)) else {
            return;
        };
        let Ok(wish) = Wish::read(&arg) else { return };
        // A lock of flock(2) ends with the open file, which holds it.
        if wish.is_flock {
            return;
        }
        let (nodeid, owner) = (request.nodeid.0, arg.owner.get());
        let (start, end) = (wish.range.start(), wish.range.end());
        match wish.kind {
            None => journal.append(&Record::Unlock { nodeid, owner, start, end }),
            Some(kind) => {
                let Some(fd) = locks.descriptor(self.aliases.own(request.nodeid), LockOwner(arg.owner)) else { return };
                let (fh, pid, is_exclusive) = (arg.fh.get(), arg.lk.pid.get().into(), kind == LockKind::Exclusive);
                journal.append(&Record::Lock { nodeid, owner, fh, fd: fd as u64, pid, start, end, is_exclusive });
            }
        }
    }

    /// Records the beginning of a session, or its end.
    pub(super) fn noted_session(&self, flags: Option<InitFlags>) {
        if let Some(journal) = &self.journal {
            journal.append(&flags.map_or(Record::End, |flags| Record::Begin { flags: flags.bits() }));
        }
    }

    fn descriptor_of(&self, fh: Handle) -> Option<(RawFd, FileType)> {
        let file = self.handles.file(fh).map(|file| (file.fd.as_raw_fd(), FileType::RegularFile));
        let directory = || self.handles.directory(fh).map(|stream| (stream.as_fd().as_raw_fd(), FileType::Directory));
        file.or_else(|_| directory()).ok()
    }
}

/// Returns the arguments, if they are there.
fn parse<T: FromBytes>(request: &Noted<'_>) -> Option<T> {
    T::read_from_prefix(request.args).ok().map(|(value, _)| value)
}
