//! What a thread of the mount does for passthrough, between the requests and replies that it carries.
//!
//! An open that the daemon has answered is kept while the daemon is asked for the file; the thread goes on, and the answer goes out
//! from whichever thread gets the daemon's.

use std::{os::fd::AsFd as _, sync::atomic::Ordering};

use rustix::io::Errno;
use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    header::{InHeader, OutHeader},
    operation::{Account, Made},
    ops::{
        open::{OpenFlags, OpenOut},
        release::ReleaseIn,
        removemapping::{RemovemappingIn, RemovemappingOne},
        setupmapping::{SETUPMAPPING_READ, SETUPMAPPING_WRITE, SetupmappingIn},
    },
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::{
    Passthrough,
    asks::Job,
    attributes::{OpenMode, Verdict},
    check::{Checked, Refusal, check},
    inodes::{Access, Answer, Ask, Backing, Found, Next, Outcome},
};
use crate::{End, forgets::forgets, lane::Lane, notify::attributes_are_stale, reply_room::ARGS_LEN};
use transom_user::window::RANGE_LEN;

/// Of `open_flags`, what the kernel takes beside PASSTHROUGH and what means something then: nothing is cached that could be
/// kept, and what DIRECT_IO asks for holds.
const KEPT_FLAGS: OpenFlags = OpenFlags::NOFLUSH;
/// Files without a place in the host's page cache.
const UNFIT_FLAGS: OpenFlags = OpenFlags::NONSEEKABLE.union(OpenFlags::STREAM);

/// What a request in flight is to this module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Kind {
    /// The kernel's, and none of our business.
    #[default]
    Carried,
    /// The kernel's OPEN of an inode.
    Open(NodeId, OpenMode),
    /// The kernel's CREATE or TMPFILE: the reply names the inode.
    Create(OpenMode),
    /// The kernel's GETATTR or SETATTR of an inode.
    Attr(NodeId),
    /// The kernel's STATX of an inode.
    Statx(NodeId),
    /// The kernel's LOOKUP, MKNOD or LINK: the reply names the inode.
    Entry,
    /// The kernel's READDIRPLUS: the reply names inodes.
    Entries,
    /// Our own.
    Own(Job),
}

/// An open that the daemon has answered and the kernel waits for.
pub(super) struct Opening {
    /// By whose descriptor the answer goes.
    lane: usize,
    unique: u64,
    nodeid: NodeId,
    mode: OpenMode,
    /// What precedes `out` in the answer.
    entry: Option<EntryOut>,
    out: OpenOut,
}

impl Passthrough {
    /// What the request of `header` is, by its first arguments.
    pub(crate) fn kind(&self, header: &InHeader, args: &[u8; ARGS_LEN]) -> Kind {
        if !self.is_on() {
            return Kind::Carried;
        }
        let mode = OpenMode(u32::from_le_bytes([args[0], args[1], args[2], args[3]]));
        let Some(opcode) = Opcode::from_u32(header.opcode.get()) else { return Kind::Carried };
        match opcode.row().account {
            // A directory is none of the files that are passed through.
            Account::Opens if opcode == Opcode::Opendir => Kind::Carried,
            Account::Opens => Kind::Open(header.nodeid.into(), mode),
            Account::MakesAndOpens | Account::OpensNameless => Kind::Create(mode),
            Account::LooksUp | Account::Makes(Made::ByMode(_) | Made::SameAs(_)) => Kind::Entry,
            Account::Makes(Made::Directory | Made::Symlink) => Kind::Carried,
            Account::Lists => Kind::Entries,
            Account::None if opcode == Opcode::Statx => Kind::Statx(header.nodeid.into()),
            Account::None if opcode.row().reply_attr_at.is_some() => Kind::Attr(header.nodeid.into()),
            Account::None
            | Account::Removes
            | Account::Renames
            | Account::Closes
            | Account::Flushes
            | Account::Locks
            | Account::Forgets
            | Account::Interrupts => Kind::Carried,
        }
    }

    /// Thread `lane` is about to read a request.
    pub(crate) fn begin_reading(&self, lane: usize) {
        if self.is_on() {
            self.readers.begin(lane);
        }
    }

    /// Thread `lane` has taken note of the request that it read, or there was none.
    pub(crate) fn end_reading(&self, lane: usize) {
        if self.is_on() {
            self.readers.end(lane);
        }
    }

    /// Why the OPEN that thread `lane` has got is not for the daemon; nothing where it is, or is another request. It then counts as
    /// open.
    pub(crate) fn refuses(&self, lane: usize, header: &InHeader, args: &[u8; ARGS_LEN]) -> Option<Errno> {
        let Kind::Open(nodeid, mode) = self.kind(header, args) else { return None };
        let open = || self.attributes.lock().open(nodeid, mode, header.pid.get());
        let mut verdict = open();
        if verdict == Verdict::Busy {
            self.readers.wait_for_others(lane);
            verdict = open();
        }
        match verdict {
            Verdict::Open => None,
            Verdict::Busy => Some(Errno::TXTBSY),
            Verdict::Stale => Some(Errno::STALE),
        }
    }

    /// The kernel does not get what an open file was counted for.
    pub(crate) fn was_not_opened(&self, kind: Kind) {
        if let Kind::Open(nodeid, mode) = kind {
            self.attributes.lock().close(nodeid, mode);
        }
    }
}

impl Lane {
    /// Takes note of the RELEASE of `len` bytes in `slot`, which the kernel has sent for `nodeid`.
    pub(crate) fn note_release(&self, nodeid: NodeId, slot: u16, len: usize) {
        if !self.shared.passthrough.is_on() {
            return;
        }
        if let Ok((args, _)) = ReleaseIn::read_from_prefix(&self.args(slot, len)) {
            self.closed(nodeid, OpenMode(args.flags.get()));
        }
    }

    /// A file that was opened with `mode` is not open any more.
    fn closed(&self, nodeid: NodeId, mode: OpenMode) {
        let passthrough = &self.shared.passthrough;
        passthrough.attributes.lock().close(nodeid, mode);
        let close = passthrough.inodes.lock().release(nodeid);
        self.unregister(close);
    }

    /// As [`Self::note_release`], of a whole FORGET or BATCH_FORGET.
    pub(crate) fn note_forget(&self, message: &[u8]) {
        let passthrough = &self.shared.passthrough;
        if !passthrough.is_on() {
            return;
        }
        for (nodeid, count) in forgets(message) {
            passthrough.attributes.lock().forget(nodeid, count);
            let close = passthrough.inodes.lock().forget(nodeid);
            self.unregister(close);
        }
    }

    /// The daemon has answered an open with `body`; tells whether the answer to the kernel is taken care of.
    pub(crate) fn opened(&self, kind: Kind, unique: u64, body: &[u8]) -> Result<bool, End> {
        let passthrough = &self.shared.passthrough;
        let Some(opening) = self.parse(kind, unique, body) else { return Ok(false) };
        let (nodeid, mode) = (opening.nodeid, opening.mode);
        if opening.entry.is_some() {
            passthrough.attributes.lock().create(nodeid, mode);
        }
        let is_unfit = OpenFlags::from_bits_retain(opening.out.open_flags.get()).intersects(UNFIT_FLAGS);
        let is_over = passthrough.obstacle().is_some();
        let next = {
            let mut inodes = passthrough.inodes.lock();
            if is_unfit || is_over && inodes.backing(nodeid).is_none() {
                Next::Answer(opening, inodes.open_ordinary(nodeid))
            } else {
                inodes.open(nodeid, mode.access(), opening)
            }
        };
        match next {
            Next::Answer(opening, answer) => self.answer(opening, answer)?,
            Next::Ask(ask) => passthrough.asks.ask(ask),
            Next::Wait => {}
        }
        Ok(true)
    }

    /// Nothing where the kernel will not take the answer for one either.
    fn parse(&self, kind: Kind, unique: u64, body: &[u8]) -> Option<Opening> {
        let lane = self.index;
        match kind {
            Kind::Open(nodeid, mode) => {
                let out = OpenOut::read_from_bytes(body).ok()?;
                Some(Opening { lane, unique, nodeid, mode, entry: None, out })
            }
            Kind::Create(mode) => {
                let (entry, rest) = EntryOut::read_from_prefix(body).ok()?;
                let out = OpenOut::read_from_bytes(rest).ok()?;
                let nodeid = NodeId::from(entry.nodeid);
                let is_one = nodeid.0 > NodeId::ROOT.0
                    && entry.attr.mode.get() & libc::S_IFMT == libc::S_IFREG
                    && i64::try_from(entry.attr.size.get()).is_ok();
                is_one.then_some(Opening { lane, unique, nodeid, mode, entry: Some(entry), out })
            }
            _ => None,
        }
    }

    /// Answers an open, which is counted already.
    fn answer(&self, opening: Opening, answer: Answer) -> Result<(), End> {
        let passthrough = &self.shared.passthrough;
        let Opening { lane, unique, nodeid, mode, mut entry, mut out } = opening;
        let flags = OpenFlags::from_bits_retain(out.open_flags.get());
        let (flags, id, counter) = match answer {
            Answer::Passed(id) => (flags & KEPT_FLAGS | OpenFlags::PASSTHROUGH, id, &passthrough.passed),
            Answer::Ordinary { may_cache } => {
                let unkept = if may_cache { OpenFlags::empty() } else { OpenFlags::KEEP_CACHE };
                (flags - OpenFlags::PASSTHROUGH - unkept, 0, &passthrough.ordinary)
            }
        };
        (out.open_flags, out.backing_id) = (flags.bits().into(), id.into());
        counter.fetch_add(1, Ordering::Relaxed);
        // The mount's end has answered it.
        let Some(kernel) = self.shared.kernel(lane) else { return Ok(()) };
        let is_mappable = matches!(answer, Answer::Passed(_)) && mode.is_writably_mappable();
        let has_attributes = is_mappable && passthrough.attributes.lock().may_be_mapped(nodeid);
        if let Some(entry) = &mut entry {
            passthrough.tell_created(entry);
        } else if has_attributes {
            // The inode is there, and nobody frees it, while its open waits: this does not block. Where it fails, so does the answer.
            let _ = attributes_are_stale(&kernel, nodeid);
        }
        let body = [entry.as_ref().map_or(&[][..], |entry| entry.as_bytes()), out.as_bytes()].concat();
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let header = OutHeader { len: len.into(), error: 0.into(), unique: unique.into() };
        match kernel.write(&header, &body) {
            Ok(()) => Ok(()),
            Err(Errno::NODEV) => Err(End::Unmounted),
            Err(errno) => {
                if entry.is_some() {
                    passthrough.attributes.lock().forget(nodeid, 1);
                }
                self.closed(nodeid, mode);
                if errno != Errno::NOENT {
                    // There is an answer, or nobody waits.
                    let _ = kernel.fail(unique, Errno::IO);
                }
                Ok(())
            }
        }
    }

    /// Sends what waits to be asked, as far as there are slots.
    pub(crate) fn send_own(&mut self) {
        while self.shared.passthrough.asks.has_some() {
            let Some(slot) = self.slots.take() else { return };
            let Some(job) = self.shared.passthrough.asks.next() else { return self.slots.give(slot) };
            let message = self.message(job);
            self.memory.memory.write(self.slots.request(slot), &message);
            let Ok((header, _)) = InHeader::read_from_prefix(&message) else { continue };
            let args = self.args(slot, message.len());
            self.add(slot, &header, message.len(), &args, Kind::Own(job));
        }
    }

    fn message(&self, job: Job) -> Vec<u8> {
        let (opcode, nodeid, args) = match job {
            Job::Map { range, ask } => {
                let write = if ask.access == Access::Write { SETUPMAPPING_WRITE } else { 0 };
                let args = SetupmappingIn {
                    fh: u64::MAX.into(),
                    foffset: 0.into(),
                    len: RANGE_LEN.into(),
                    flags: (SETUPMAPPING_READ | write).into(),
                    moffset: (u64::from(range) * RANGE_LEN).into(),
                };
                (Opcode::Setupmapping, ask.nodeid, args.as_bytes().to_vec())
            }
            Job::Unmap { range, nodeid } => {
                let one = RemovemappingOne { moffset: (u64::from(range) * RANGE_LEN).into(), len: RANGE_LEN.into() };
                let args = [RemovemappingIn { count: 1.into() }.as_bytes(), one.as_bytes()].concat();
                (Opcode::Removemapping, nodeid, args)
            }
        };
        let header = InHeader {
            len: ((size_of::<InHeader>() + args.len()) as u32).into(),
            opcode: (opcode as u32).into(),
            unique: self.shared.passthrough.asks.number().into(),
            nodeid: nodeid.into(),
            ..InHeader::new_zeroed()
        };
        [header.as_bytes(), &args].concat()
    }

    /// The daemon has answered a request of our own.
    pub(crate) fn answered(&self, job: Job, outcome: Result<(), Errno>) -> Result<(), End> {
        let passthrough = &self.shared.passthrough;
        match job {
            // Where it has failed, the next to use the range replaces what is there.
            Job::Unmap { range, .. } => passthrough.asks.give(range),
            Job::Map { range, ask } => {
                let file = passthrough.files.as_ref().and_then(|files| files.take(range.into()));
                match outcome {
                    Ok(()) => passthrough.asks.unmap(range, ask.nodeid),
                    Err(_) => passthrough.asks.give(range),
                }
                let found = outcome
                    .map_err(Refusal::Daemon)
                    .and_then(|()| check(file.ok_or(Refusal::NoFile)?, ask.access))
                    .and_then(|checked| self.register(ask, checked));
                return self.settle(ask, found);
            }
        }
        Ok(())
    }

    fn register(&self, ask: Ask, checked: Checked) -> Result<Found, Refusal> {
        let known = self.shared.passthrough.inodes.lock().backing(ask.nodeid);
        match known {
            Some(backing) if backing.identity == checked.identity => Ok(Found::Writable),
            Some(_) => Err(Refusal::Another),
            None => {
                let id = self.kernel.register(checked.file.as_fd()).map_err(Refusal::Kernel)?;
                let (identity, is_writable) = (checked.identity, checked.is_writable);
                Ok(Found::Registered(Backing { id, identity, is_writable, may_idle: checked.is_for_reading }))
            }
        }
    }

    /// Answers the opens that have waited for `found`.
    fn settle(&self, ask: Ask, found: Result<Found, Refusal>) -> Result<(), End> {
        let passthrough = &self.shared.passthrough;
        let found = found.unwrap_or_else(|refusal| {
            passthrough.log_refusal(ask.nodeid, refusal);
            Found::Nothing
        });
        let Outcome { answers, ask, close } = passthrough.inodes.lock().answered(ask, found);
        self.unregister(close);
        if let Some(ask) = ask {
            passthrough.asks.ask(ask);
        }
        answers.into_iter().try_for_each(|(opening, answer)| self.answer(opening, answer))
    }

    fn unregister(&self, id: Option<i32>) {
        // It was registered once and is closed once; after the end nothing is.
        if let Some(Err(errno)) = id.map(|id| self.kernel.unregister(id)) {
            tracing::debug!(%errno, "a file stays registered");
        }
    }
}
