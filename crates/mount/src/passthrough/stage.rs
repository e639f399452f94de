//! The passthrough stage of one worker: refuses opens, holds their replies back while the daemon is asked for the file,
//! and keeps count of what the kernel has open.
//!
//! No thread waits for the daemon's file; only the open does. Its reply is sent by whichever worker receives the file.
//! With passthrough off, every method returns at once.

use std::{os::fd::AsFd as _, sync::Arc, sync::atomic::Ordering};

use rustix::io::Errno;
use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    header::{InHeader, OutHeader},
    operation::{Effect, MadeType},
    ops::{
        open::{OpenFlags, OpenOut},
        release::ReleaseIn,
    },
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    Passthrough,
    attributes::{OpenMode, OpenVerdict},
    backing_requests::MappingCommand,
    check::{Checked, Refusal, check},
    inodes::{Backing, BackingFileRequest, BackingVerdict, Next, OpenAnswer, SettledOpens},
};
use crate::{
    MountEnd,
    forgets::parse_forgets,
    fuse_device::{FuseDevice, SharedBuffer},
    fuse_devices::FuseDevices,
    notification::expire_attributes,
    reply_room::ARGS_LEN,
};

/// The `open_flags` that stay set with PASSTHROUGH. The others are about the page cache of the FUSE inode, which is not
/// used.
const KEPT_FLAGS: OpenFlags = OpenFlags::NOFLUSH;
/// Files without a place in the host's page cache.
const UNCACHED_FLAGS: OpenFlags = OpenFlags::NONSEEKABLE.union(OpenFlags::STREAM);
/// More bytes than any reply to an open has.
const OPEN_LEN_MAX: usize = 256;

/// What passthrough has to do about a request in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum RequestKind {
    /// Nothing: the reply is forwarded.
    #[default]
    Forwarded,
    /// OPEN of an inode.
    Open(NodeId, OpenMode),
    /// CREATE or TMPFILE: the reply names the inode.
    Create(OpenMode),
    /// GETATTR or SETATTR of an inode.
    Attr(NodeId),
    /// STATX of an inode.
    Statx(NodeId),
    /// LOOKUP, MKNOD or LINK: the reply names the inode.
    Entry,
    /// READDIRPLUS: the reply names inodes.
    Entries,
    /// A request of the mount's own, for a file of the daemon.
    Mapping(MappingCommand),
}

/// An open that the daemon has answered and the kernel waits for.
pub(super) struct PendingOpen {
    /// The worker whose descriptor the reply goes through.
    worker: usize,
    unique: u64,
    nodeid: NodeId,
    mode: OpenMode,
    /// What precedes `out` in the reply to CREATE and TMPFILE.
    entry: Option<EntryOut>,
    out: OpenOut,
}

/// Passthrough as one worker uses it.
pub(crate) struct PassthroughStage {
    worker: usize,
    device: Arc<FuseDevice>,
    /// The descriptors of all workers, by worker.
    devices: Arc<FuseDevices>,
    shared: Arc<Passthrough>,
}

impl PassthroughStage {
    /// Creates the stage of `worker`, which reads requests from `device`.
    pub(crate) fn new(
        worker: usize,
        device: Arc<FuseDevice>,
        devices: Arc<FuseDevices>,
        shared: Arc<Passthrough>,
    ) -> Self {
        Self { worker, device, devices, shared }
    }

    /// Returns whether files are passed through.
    pub(crate) fn is_on(&self) -> bool {
        self.shared.is_on()
    }

    /// To be called before the worker reads a request.
    pub(crate) fn begin_reading(&self) {
        if self.shared.is_on() {
            self.shared.readers.begin(self.worker);
        }
    }

    /// To be called once the worker has dealt with the request that it read, or found none.
    pub(crate) fn end_reading(&self) {
        if self.shared.is_on() {
            self.shared.readers.end(self.worker);
        }
    }

    /// Returns the kind of a request, from its header and first arguments.
    pub(crate) fn kind(&self, header: &InHeader, args: &[u8; ARGS_LEN]) -> RequestKind {
        if !self.shared.is_on() {
            return RequestKind::Forwarded;
        }
        let mode = OpenMode(u32::from_le_bytes([args[0], args[1], args[2], args[3]]));
        let Some(opcode) = Opcode::from_u32(header.opcode.get()) else { return RequestKind::Forwarded };
        match opcode.row().effect {
            // Directories are not passed through.
            Effect::Opens if opcode == Opcode::Opendir => RequestKind::Forwarded,
            Effect::Opens => RequestKind::Open(header.nodeid.into(), mode),
            Effect::MakesAndOpens | Effect::OpensNameless => RequestKind::Create(mode),
            Effect::LooksUp | Effect::Makes(MadeType::ByMode(_) | MadeType::SameAs(_)) => RequestKind::Entry,
            Effect::Makes(MadeType::Directory | MadeType::Symlink) => RequestKind::Forwarded,
            Effect::Lists => RequestKind::Entries,
            Effect::None if opcode == Opcode::Statx => RequestKind::Statx(header.nodeid.into()),
            Effect::None if opcode.row().reply_attr_at.is_some() => RequestKind::Attr(header.nodeid.into()),
            Effect::None
            | Effect::Removes
            | Effect::Renames
            | Effect::Closes
            | Effect::Flushes
            | Effect::Locks
            | Effect::Forgets
            | Effect::Interrupts => RequestKind::Forwarded,
        }
    }

    /// Returns the error to answer an OPEN with, or `None` if the request goes to the daemon. An OPEN then counts as
    /// open.
    ///
    /// May wait for other workers to deal with requests that they have read.
    pub(crate) fn refusal(&self, kind: RequestKind, header: &InHeader) -> Option<Errno> {
        let RequestKind::Open(nodeid, mode) = kind else { return None };
        let open = || self.shared.attributes.lock().open(nodeid, mode, header.pid.get());
        let mut verdict = open();
        if verdict == OpenVerdict::Busy {
            self.shared.readers.wait_for_others(self.worker);
            verdict = open();
        }
        match verdict {
            OpenVerdict::Open => None,
            OpenVerdict::Busy => Some(Errno::TXTBSY),
            OpenVerdict::Stale => Some(Errno::STALE),
        }
    }

    /// Notes a RELEASE of `nodeid`, from its first arguments.
    pub(crate) fn note_release(&self, nodeid: NodeId, args: &[u8; ARGS_LEN]) {
        if let Ok((args, _)) = ReleaseIn::read_from_prefix(args) {
            self.note_closed(nodeid, OpenMode(args.flags.get()));
        }
    }

    /// Notes a whole FORGET or BATCH_FORGET.
    pub(crate) fn note_forget(&self, message: &[u8]) {
        if !self.shared.is_on() {
            return;
        }
        for (nodeid, count) in parse_forgets(message) {
            self.shared.attributes.lock().forget(nodeid, count);
            let unused = self.shared.inodes.lock().forget(nodeid);
            self.unregister(unused);
        }
    }

    /// Notes that an open failed, which [`Self::refusal`] has counted as open.
    pub(crate) fn note_failed_open(&self, kind: RequestKind) {
        if let RequestKind::Open(nodeid, mode) = kind {
            self.shared.attributes.lock().close(nodeid, mode);
        }
    }

    /// Takes over the daemon's reply to an open. Returns whether it did: the kernel gets its reply now or later.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn take_open(&self, kind: RequestKind, unique: u64, body: SharedBuffer<'_>) -> Result<bool, MountEnd> {
        if !matches!(kind, RequestKind::Open(..) | RequestKind::Create(_)) {
            return Ok(false);
        }
        let mut bytes = [0; OPEN_LEN_MAX];
        let bytes = &mut bytes[..body.len_bytes.min(OPEN_LEN_MAX)];
        body.memory.read(body.offset, bytes);
        let Some(open) = self.parse_open(kind, unique, bytes) else {
            self.note_failed_open(kind);
            return Ok(false);
        };
        let (nodeid, mode) = (open.nodeid, open.mode);
        if open.entry.is_some() {
            self.shared.attributes.lock().create(nodeid, mode);
        }
        let is_uncached = OpenFlags::from_bits_retain(open.out.open_flags.get()).intersects(UNCACHED_FLAGS);
        let is_unavailable = self.shared.obstacle().is_some();
        let next = {
            let mut inodes = self.shared.inodes.lock();
            if is_uncached || is_unavailable && inodes.backing(nodeid).is_none() {
                Next::Answer(open, inodes.open_ordinary(nodeid))
            } else {
                inodes.open(nodeid, mode.access(), open)
            }
        };
        match next {
            Next::Answer(open, answer) => self.reply(open, answer)?,
            Next::Request(request) => self.shared.requests.add(request),
            Next::Wait => {}
        }
        Ok(true)
    }

    /// Returns `None` for a reply that the kernel would reject too.
    fn parse_open(&self, kind: RequestKind, unique: u64, body: &[u8]) -> Option<PendingOpen> {
        let worker = self.worker;
        match kind {
            RequestKind::Open(nodeid, mode) => {
                let out = OpenOut::read_from_bytes(body).ok()?;
                Some(PendingOpen { worker, unique, nodeid, mode, entry: None, out })
            }
            RequestKind::Create(mode) => {
                let (entry, rest) = EntryOut::read_from_prefix(body).ok()?;
                let out = OpenOut::read_from_bytes(rest).ok()?;
                let nodeid = NodeId::from(entry.nodeid);
                let is_valid = nodeid.0 > NodeId::ROOT.0
                    && entry.attr.mode.get() & libc::S_IFMT == libc::S_IFREG
                    && i64::try_from(entry.attr.size.get()).is_ok();
                is_valid.then_some(PendingOpen { worker, unique, nodeid, mode, entry: Some(entry), out })
            }
            _ => None,
        }
    }

    /// Replies to an open, which is counted as open already.
    fn reply(&self, open: PendingOpen, answer: OpenAnswer) -> Result<(), MountEnd> {
        let PendingOpen { worker, unique, nodeid, mode, mut entry, mut out } = open;
        let flags = OpenFlags::from_bits_retain(out.open_flags.get());
        let (flags, id, counter) = match answer {
            OpenAnswer::Passed(id) => (flags & KEPT_FLAGS | OpenFlags::PASSTHROUGH, id, &self.shared.passed),
            OpenAnswer::Ordinary { may_cache } => {
                let dropped = if may_cache { OpenFlags::empty() } else { OpenFlags::KEEP_CACHE };
                (flags - OpenFlags::PASSTHROUGH - dropped, 0, &self.shared.ordinary)
            }
        };
        (out.open_flags, out.backing_id) = (flags.bits().into(), id.into());
        counter.fetch_add(1, Ordering::Relaxed);
        // After the end of the mount the kernel has answered the open itself.
        let Some(device) = self.devices.get(worker) else { return Ok(()) };
        let is_mappable = matches!(answer, OpenAnswer::Passed(_)) && mode.is_writably_mappable();
        let has_attributes = is_mappable && self.shared.attributes.lock().set_mappable(nodeid);
        if let Some(entry) = &mut entry {
            self.shared.adjust_created(entry);
        } else if has_attributes {
            // This does not block: the inode exists, and is not freed while its open waits. If it fails, so does the
            // reply.
            let _ = expire_attributes(&device, nodeid);
        }
        let body = [entry.as_ref().map_or(&[][..], |entry| entry.as_bytes()), out.as_bytes()].concat();
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        let header = OutHeader { len: len.into(), error: 0.into(), unique: unique.into() };
        match device.write(&header, &body) {
            Ok(()) => Ok(()),
            Err(Errno::NODEV) => Err(MountEnd::Unmounted),
            Err(errno) => {
                if entry.is_some() {
                    self.shared.attributes.lock().forget(nodeid, 1);
                }
                self.note_closed(nodeid, mode);
                if errno != Errno::NOENT {
                    // If this fails too, the open has been answered, or nobody waits for it.
                    let _ = device.fail(unique, Errno::IO);
                }
                Ok(())
            }
        }
    }

    /// Notes that a file that was opened with `mode` is closed.
    fn note_closed(&self, nodeid: NodeId, mode: OpenMode) {
        self.shared.attributes.lock().close(nodeid, mode);
        let unused = self.shared.inodes.lock().release(nodeid);
        self.unregister(unused);
    }

    /// Returns whether [`Self::next_command`] may return a command.
    pub(crate) fn has_commands(&self) -> bool {
        self.shared.requests.has_some()
    }

    /// Returns the next request of the mount's own that can be sent.
    pub(crate) fn next_command(&self) -> Option<(MappingCommand, Vec<u8>)> {
        let command = self.shared.requests.next()?;
        Some((command, command.message(self.shared.requests.next_unique())))
    }

    /// Handles the daemon's reply to `command`.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn command_done(&self, command: MappingCommand, outcome: Result<(), Errno>) -> Result<(), MountEnd> {
        let requests = &self.shared.requests;
        match command {
            // If it failed, the next mapping replaces what is there.
            MappingCommand::Unmap { range, .. } => requests.free_range(range),
            MappingCommand::Map { range, request } => {
                let file = self.shared.files.as_ref().and_then(|files| files.take(range.into()));
                match outcome {
                    Ok(()) => requests.unmap(range, request.nodeid),
                    Err(_) => requests.free_range(range),
                }
                let found = outcome
                    .map_err(Refusal::Daemon)
                    .and_then(|()| check(file.ok_or(Refusal::NoFile)?, request.access))
                    .and_then(|checked| self.register(request, checked));
                return self.settle(request, found);
            }
        }
        Ok(())
    }

    fn register(&self, request: BackingFileRequest, checked: Checked) -> Result<BackingVerdict, Refusal> {
        let known = self.shared.inodes.lock().backing(request.nodeid);
        match known {
            Some(backing) if backing.identity == checked.identity => Ok(BackingVerdict::Writable),
            Some(_) => Err(Refusal::Another),
            None => {
                let id = self.device.register(checked.file.as_fd()).map_err(Refusal::Kernel)?;
                let (identity, is_writable) = (checked.identity, checked.is_writable);
                Ok(BackingVerdict::Registered(Backing { id, identity, is_writable, may_idle: checked.is_for_reading }))
            }
        }
    }

    /// Replies to the opens that have waited for `found`.
    fn settle(&self, request: BackingFileRequest, found: Result<BackingVerdict, Refusal>) -> Result<(), MountEnd> {
        let found = found.unwrap_or_else(|refusal| {
            self.shared.log_refusal(request.nodeid, refusal);
            BackingVerdict::Nothing
        });
        let SettledOpens { answers, request, unused } = self.shared.inodes.lock().request_done(request, found);
        self.unregister(unused);
        if let Some(request) = request {
            self.shared.requests.add(request);
        }
        answers.into_iter().try_for_each(|(open, answer)| self.reply(open, answer))
    }

    fn unregister(&self, id: Option<i32>) {
        // Each id is closed once. After the end of the mount none is valid.
        if let Some(Err(errno)) = id.map(|id| self.device.unregister(id)) {
            tracing::debug!(%errno, "a backing file stays registered");
        }
    }

    /// Changes the attributes in `body`, a reply without an error that the kernel is about to get, where they lie.
    pub(crate) fn adjust_attributes(&self, kind: RequestKind, body: &SharedBuffer<'_>) {
        self.shared.adjust_attributes(kind, body);
    }

    /// Notes that the kernel did not take the reply `body`.
    pub(crate) fn note_rejected_reply(&self, kind: RequestKind, body: &SharedBuffer<'_>) {
        self.shared.note_rejected_reply(kind, body);
    }
}

#[cfg(test)]
#[path = "stage_test.rs"]
mod tests;
