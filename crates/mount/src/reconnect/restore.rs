//! Prepares a new daemon for a mount: looks up the kernel's inodes by their names, and opens its files.
//!
//! Everything is restored before any other request is sent. A file that is removed or renamed on the host later is
//! known by then, and no request has to wait for a lookup. The queries are sent as [`queries`](super::queries) does.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{Attr, AttrOut, EntryOut},
    ops::{
        getattr::GetattrIn,
        open::{OpenIn, OpenOut},
        release::ReleaseIn,
        statx::{StatxIn, StatxOut},
    },
};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes as _};

use super::{
    InitAgreement, Reconnect, Tables,
    handles::{DaemonHandle, OpenAtDaemon, Opened},
    inodes::{DaemonNode, Forgotten, Identity, LookupVerdict},
    queries::{Query, QuerySet, UNIQUE, run_queries, wait_reply},
};
use crate::{
    InitError, MountError,
    daemon_client::DaemonClient,
    init::{self, Wanted},
    request::DirEntryName,
};

/// Bit of `stx_mask` for the time of birth.
const STATX_BTIME: u32 = 0x800;

/// Records what the kernel gets in reply to INIT: later daemons will have to offer it. Does nothing if the mount cannot
/// reconnect.
///
/// # Errors
/// The daemon could not say which directory it shares.
pub(crate) fn record_agreement(client: &mut DaemonClient<'_>, reply: &[u8]) -> Result<(), InitError> {
    if let Some(reconnect) = client.connection().reconnect.clone() {
        let root = root_ino(client)?;
        reconnect.set_agreement(reply, root);
    }
    Ok(())
}

/// Prepares the daemon of a new connection to replace the previous one. Blocks, with a bound for each reply.
///
/// # Errors
/// The daemon cannot replace the previous one, or the connection has ended.
pub(super) fn restore(client: &mut DaemonClient<'_>, reconnect: &Reconnect) -> Result<(), MountError> {
    let agreement = reconnect.agreement.lock().clone().ok_or(InitError::InvalidReply)?;
    send_init(client, &agreement)?;
    agreement.check_root(root_ino(client)?)?;
    let tables = &reconnect.tables;
    run_queries(client, &mut InodeLookups::new(tables))?;
    let wanted = tables.lock().handles.wanted().into();
    run_queries(client, &mut FileReopens::new(tables, wanted))?;
    tables.lock().inodes.settle();
    Ok(())
}

fn send_init(client: &mut DaemonClient<'_>, agreement: &InitAgreement) -> Result<(), MountError> {
    let (message, offered) = agreement.request(UNIQUE);
    let slot = client.take_slot().ok_or(InitError::InvalidReply)?;
    client.send(slot, &message);
    let reply = wait_reply(client)?.1.map_err(InitError::Refused)?;
    let agreed = init::filter_reply(&reply, offered, Wanted::default(), rustix::param::page_size());
    Ok(agreement.check(&agreed.ok_or(InitError::InvalidReply)?.reply)?)
}

/// Returns the inode number of the shared directory, if the daemon reports it.
fn root_ino(client: &mut DaemonClient<'_>) -> Result<Option<u64>, InitError> {
    Ok(root_attr(client)?.map(|attr| attr.ino.get()))
}

/// Returns whether a directory is shared, if the daemon reports it.
pub(crate) fn is_directory_shared(client: &mut DaemonClient<'_>) -> Result<Option<bool>, InitError> {
    let mode = root_attr(client)?.map(|attr| attr.mode.get());
    Ok(mode.map(|mode| mode & libc::S_IFMT == libc::S_IFDIR))
}

fn root_attr(client: &mut DaemonClient<'_>) -> Result<Option<Attr>, InitError> {
    let mut root = Root { attr: None, is_sent: false };
    run_queries(client, &mut root)?;
    Ok(root.attr)
}

/// GETATTR of the shared directory.
struct Root {
    is_sent: bool,
    attr: Option<Attr>,
}

impl QuerySet for Root {
    type Job = ();

    fn next(&mut self) -> Option<((), Query)> {
        let is_sent = std::mem::replace(&mut self.is_sent, true);
        (!is_sent)
            .then(|| ((), Query::new(Opcode::Getattr, DaemonNode::ROOT, GetattrIn::new_zeroed().as_bytes().into())))
    }

    fn record_reply(&mut self, (): (), reply: Result<Vec<u8>, Errno>) {
        self.attr = read::<AttrOut>(reply).map(|out| out.attr);
    }
}

/// Looks up the inodes that the daemon does not know, from the root on.
pub(super) struct InodeLookups<'t> {
    tables: &'t Mutex<Tables>,
    /// Directories that the daemon knows, and whose names were not looked up.
    directories: VecDeque<NodeId>,
    steps: VecDeque<Step>,
    /// Whether the daemon may report times of birth.
    has_births: bool,
}

/// A query about the inode that had the name `entry_name`.
pub(super) struct Step {
    nodeid: NodeId,
    entry_name: DirEntryName,
    /// What the daemon has found there. `Some` if it is asked for the time of birth.
    found: Option<DaemonNode>,
}

impl<'t> InodeLookups<'t> {
    /// Creates the lookups of all inodes in `tables`.
    pub(super) fn new(tables: &'t Mutex<Tables>) -> Self {
        Self { tables, directories: VecDeque::from([NodeId::ROOT]), steps: VecDeque::new(), has_births: true }
    }

    fn next_step(&mut self) -> Option<Step> {
        while self.steps.is_empty() {
            let directory = self.directories.pop_front()?;
            let lost = self.tables.lock().inodes.lost_in(directory);
            self.steps.extend(lost.into_iter().map(|(entry_name, nodeid)| Step { nodeid, entry_name, found: None }));
        }
        self.steps.pop_front()
    }

    /// Handles an inode that was found: it is the one that was looked for, or another.
    fn judge(&mut self, step: Step, daemon: DaemonNode, is_same: bool) {
        let Step { nodeid, entry_name, .. } = step;
        let mut tables = self.tables.lock();
        if is_same && tables.inodes.found(nodeid, daemon, entry_name.clone()) == LookupVerdict::Same {
            self.directories.push_back(nodeid);
            return;
        }
        tables.owed.push(Forgotten { daemon, count: 1 });
    }
}

impl QuerySet for InodeLookups<'_> {
    type Job = Step;

    fn next(&mut self) -> Option<(Step, Query)> {
        loop {
            let step = self.next_step()?;
            if let Some(daemon) = step.found {
                let args = StatxIn { sx_mask: STATX_BTIME.into(), ..StatxIn::new_zeroed() };
                return Some((step, Query::new(Opcode::Statx, daemon, args.as_bytes().into())));
            }
            let parent = self.tables.lock().inodes.daemon_of(step.entry_name.parent);
            if let Ok(parent) = parent {
                let name = [&step.entry_name.name[..], b"\0"].concat();
                return Some((step, Query::new(Opcode::Lookup, parent, name)));
            }
        }
    }

    fn record_reply(&mut self, step: Step, reply: Result<Vec<u8>, Errno>) {
        if let Some(daemon) = step.found {
            let identity = self.tables.lock().inodes.identity(step.nodeid);
            let birth = reply.map(|body| birth(&body));
            self.has_births &= birth != Err(Errno::NOSYS);
            let is_same = match birth {
                Ok(Some(birth)) => identity.is_some_and(|identity| identity.is_born_by(birth)),
                // The daemon does not report times of birth.
                Ok(None) | Err(Errno::NOSYS) => true,
                Err(_) => false,
            };
            return self.judge(step, daemon, is_same);
        }
        let is_absent = matches!(reply, Err(Errno::NOENT | Errno::NOTDIR));
        let entry = read::<EntryOut>(reply);
        if is_absent || entry.is_some_and(|entry| entry.nodeid.get() == 0) {
            self.tables.lock().inodes.unname_of(step.nodeid, &step.entry_name);
            return;
        }
        // After other errors the name is kept: this daemon cannot look it up, but the next one may.
        let Some(entry) = entry.filter(|entry| entry.nodeid.get() > NodeId::ROOT.0) else { return };
        let daemon = DaemonNode(entry.nodeid.get());
        let identity = self.tables.lock().inodes.identity(step.nodeid);
        match identity.map_or(Some(false), |identity| identity.matches(&Identity::of(&entry))) {
            None if self.has_births => self.steps.push_front(Step { found: Some(daemon), ..step }),
            is_same => self.judge(step, daemon, is_same.unwrap_or(true)),
        }
    }
}

/// Returns the structure that a reply begins with, if it is long enough.
fn read<T: FromBytes>(reply: Result<Vec<u8>, Errno>) -> Option<T> {
    T::read_from_prefix(&reply.ok()?).ok().map(|(out, _)| out)
}

/// Returns the time of birth in a reply to STATX.
fn birth(body: &[u8]) -> Option<(u64, u32)> {
    let (out, _) = StatxOut::read_from_prefix(body).ok()?;
    let btime = out.stat.btime;
    (out.stat.mask.get() & STATX_BTIME != 0).then(|| (btime.tv_sec.get().cast_unsigned(), btime.tv_nsec.get()))
}

/// Opens the files that the kernel has open.
pub(super) struct FileReopens<'t> {
    tables: &'t Mutex<Tables>,
    wanted: VecDeque<(Handle, Opened)>,
    /// Files that the kernel closed while they were being opened.
    unwanted: VecDeque<(OpenAtDaemon, Opened)>,
}

/// What a query of [`FileReopens`] is for.
pub(super) enum FileJob {
    Open(Handle, Opened, DaemonNode),
    Close,
}

impl<'t> FileReopens<'t> {
    /// Creates the opens of `wanted`.
    pub(super) fn new(tables: &'t Mutex<Tables>, wanted: VecDeque<(Handle, Opened)>) -> Self {
        Self { tables, wanted, unwanted: VecDeque::new() }
    }
}

impl QuerySet for FileReopens<'_> {
    type Job = FileJob;

    fn next(&mut self) -> Option<(FileJob, Query)> {
        if let Some((OpenAtDaemon { handle, node }, opened)) = self.unwanted.pop_front() {
            let args = ReleaseIn { fh: handle.0.into(), flags: opened.flags.into(), ..ReleaseIn::new_zeroed() };
            let opcode = if opened.is_dir { Opcode::Releasedir } else { Opcode::Release };
            return Some((FileJob::Close, Query::new(opcode, node, args.as_bytes().into())));
        }
        loop {
            let (handle, opened) = self.wanted.pop_front()?;
            let node = {
                let tables = self.tables.lock();
                let is_open = tables.handles.known(handle) != Err(Errno::BADF);
                tables.inodes.daemon_of(opened.nodeid).ok().filter(|_| is_open)
            };
            let Some(node) = node else { continue };
            let opcode = if opened.is_dir { Opcode::Opendir } else { Opcode::Open };
            let args = OpenIn { flags: opened.flags.into(), open_flags: 0.into() };
            let query = Query::new(opcode, node, args.as_bytes().into());
            return Some((FileJob::Open(handle, opened, node), Query { uid: opened.uid, gid: opened.gid, ..query }));
        }
    }

    fn record_reply(&mut self, job: FileJob, reply: Result<Vec<u8>, Errno>) {
        let (FileJob::Open(handle, opened, node), Some(out)) = (job, read::<OpenOut>(reply)) else { return };
        let known = OpenAtDaemon { handle: DaemonHandle(out.fh.get()), node };
        if !self.tables.lock().handles.reopened(handle, known) {
            self.unwanted.push_back((known, opened));
        }
    }
}
