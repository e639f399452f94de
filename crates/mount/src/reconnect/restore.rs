//! A new daemon learns what the kernel holds: inodes are looked up by their names, and files opened.
//!
//! All at once, before anything else is asked: what somebody removes or renames on the host later is known by then, and nothing
//! has to be looked up between a request and its answer. How it is asked is in [`converse`](super::converse).

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{AttrOut, EntryOut},
    ops::{
        getattr::GetattrIn,
        open::{OpenIn, OpenOut},
        release::ReleaseIn,
        statx::{StatxIn, StatxOut},
    },
};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes as _};

use super::{
    Promise, Reconnect, Tables,
    converse::{Question, Questions, UNIQUE},
    handles::{DaemonHandle, Known, Opened},
    inodes::{DaemonNode, Forgotten, Found, Identity, Place},
};
use crate::{InitError, MountError, init, lane::Lane, sleep::Sleep};

/// Of `stx_mask`: the time of birth is told.
const STATX_BTIME: u32 = 0x800;

impl Lane {
    /// The daemon has answered INIT with `answer`, which goes to the kernel: later ones will have to keep it.
    pub(crate) fn promised(&mut self, sleep: &mut Sleep, answer: &[u8]) -> Result<(), InitError> {
        if let Some(reconnect) = self.shared.reconnect.clone() {
            let root = self.root(sleep)?;
            reconnect.promise(answer, root);
        }
        Ok(())
    }

    /// Makes the daemon of this connection take the place of the one before. Blocks, with a bound for each answer.
    pub(super) fn restore(&mut self, reconnect: &Reconnect) -> Result<(), MountError> {
        let mut sleep = Sleep::new(self).map_err(InitError::End)?;
        let promise = reconnect.promise.lock().clone().ok_or(InitError::Nonsense)?;
        self.introduce(&mut sleep, &promise)?;
        promise.check_root(self.root(&mut sleep)?)?;
        let tables = &reconnect.tables;
        self.converse(&mut sleep, &mut Names::new(tables))?;
        let wanted = tables.lock().handles.wanted().into();
        self.converse(&mut sleep, &mut Files::new(tables, wanted))?;
        tables.lock().inodes.settle();
        Ok(())
    }

    /// INIT.
    fn introduce(&mut self, sleep: &mut Sleep, promise: &Promise) -> Result<(), MountError> {
        let (message, offered) = promise.request(UNIQUE);
        let slot = self.slots.take().ok_or(InitError::Nonsense)?;
        self.post(slot, &message);
        let answer = self.await_answer(sleep)?.1;
        let answer = answer.map_err(InitError::Refused)?;
        let (answer, _) =
            init::filter_reply(&answer, offered, false, rustix::param::page_size()).ok_or(InitError::Nonsense)?;
        Ok(promise.check(&answer)?)
    }

    /// The number of the shared directory's inode, if it is told.
    fn root(&mut self, sleep: &mut Sleep) -> Result<Option<u64>, InitError> {
        let mut root = Root { ino: None, is_asked: false };
        self.converse(sleep, &mut root)?;
        Ok(root.ino)
    }
}

/// GETATTR of the shared directory.
struct Root {
    is_asked: bool,
    ino: Option<u64>,
}

impl Questions for Root {
    type Job = ();

    fn next(&mut self) -> Option<((), Question)> {
        let is_asked = std::mem::replace(&mut self.is_asked, true);
        (!is_asked)
            .then(|| ((), Question::new(Opcode::Getattr, DaemonNode::ROOT, GetattrIn::new_zeroed().as_bytes().into())))
    }

    fn answered(&mut self, (): (), answer: Result<Vec<u8>, Errno>) {
        self.ino = read::<AttrOut>(answer).map(|out| out.attr.ino.get());
    }
}

/// Looks inodes up, from the root on.
pub(super) struct Names<'t> {
    tables: &'t Mutex<Tables>,
    /// Directories that the daemon knows, and whose names were not asked for.
    directories: VecDeque<NodeId>,
    steps: VecDeque<Step>,
    /// Not known to be false.
    has_births: bool,
}

/// What is asked about the inode that `place` stood for.
pub(super) struct Step {
    nodeid: NodeId,
    place: Place,
    /// What the daemon has found there, where it is asked when that was born.
    found: Option<DaemonNode>,
}

impl<'t> Names<'t> {
    pub(super) fn new(tables: &'t Mutex<Tables>) -> Self {
        Self { tables, directories: VecDeque::from([NodeId::ROOT]), steps: VecDeque::new(), has_births: true }
    }

    fn next_step(&mut self) -> Option<Step> {
        while self.steps.is_empty() {
            let directory = self.directories.pop_front()?;
            let lost = self.tables.lock().inodes.lost_in(directory);
            self.steps.extend(lost.into_iter().map(|(place, nodeid)| Step { nodeid, place, found: None }));
        }
        self.steps.pop_front()
    }

    /// The name leads to an inode of the daemon's, which is the one that is meant or not.
    fn judge(&mut self, step: Step, daemon: DaemonNode, is_same: bool) {
        let Step { nodeid, place, .. } = step;
        let mut tables = self.tables.lock();
        if is_same && tables.inodes.found(nodeid, daemon, place.clone()) == Found::Same {
            self.directories.push_back(nodeid);
            return;
        }
        tables.owed.push(Forgotten { daemon, count: 1 });
    }
}

impl Questions for Names<'_> {
    type Job = Step;

    fn next(&mut self) -> Option<(Step, Question)> {
        loop {
            let step = self.next_step()?;
            if let Some(daemon) = step.found {
                let args = StatxIn { sx_mask: STATX_BTIME.into(), ..StatxIn::new_zeroed() };
                return Some((step, Question::new(Opcode::Statx, daemon, args.as_bytes().into())));
            }
            let parent = self.tables.lock().inodes.daemon_of(step.place.parent);
            if let Ok(parent) = parent {
                let name = [&step.place.name[..], b"\0"].concat();
                return Some((step, Question::new(Opcode::Lookup, parent, name)));
            }
        }
    }

    fn answered(&mut self, step: Step, answer: Result<Vec<u8>, Errno>) {
        if let Some(daemon) = step.found {
            let identity = self.tables.lock().inodes.identity(step.nodeid);
            let birth = answer.map(|body| birth(&body));
            self.has_births &= birth != Err(Errno::NOSYS);
            let is_same = match birth {
                Ok(Some(birth)) => identity.is_some_and(|identity| identity.is_born_by(birth)),
                // There are none to be told.
                Ok(None) | Err(Errno::NOSYS) => true,
                Err(_) => false,
            };
            return self.judge(step, daemon, is_same);
        }
        let is_absent = matches!(answer, Err(Errno::NOENT | Errno::NOTDIR));
        let entry = read::<EntryOut>(answer);
        if is_absent || entry.is_some_and(|entry| entry.nodeid.get() == 0) {
            self.tables.lock().inodes.unname_of(step.nodeid, &step.place);
            return;
        }
        // Otherwise the name is kept: this daemon cannot use it, and the next one may.
        let Some(entry) = entry.filter(|entry| entry.nodeid.get() > NodeId::ROOT.0) else { return };
        let daemon = DaemonNode(entry.nodeid.get());
        let identity = self.tables.lock().inodes.identity(step.nodeid);
        match identity.map_or(Some(false), |identity| identity.matches(&Identity::of(&entry))) {
            None if self.has_births => self.steps.push_front(Step { found: Some(daemon), ..step }),
            is_same => self.judge(step, daemon, is_same.unwrap_or(true)),
        }
    }
}

/// The structure that an answer begins with, if it is one.
fn read<T: FromBytes>(answer: Result<Vec<u8>, Errno>) -> Option<T> {
    T::read_from_prefix(&answer.ok()?).ok().map(|(out, _)| out)
}

/// The time of birth in an answer to STATX.
fn birth(body: &[u8]) -> Option<(u64, u32)> {
    let (out, _) = StatxOut::read_from_prefix(body).ok()?;
    let btime = out.stat.btime;
    (out.stat.mask.get() & STATX_BTIME != 0).then(|| (btime.tv_sec.get().cast_unsigned(), btime.tv_nsec.get()))
}

/// Opens files.
pub(super) struct Files<'t> {
    tables: &'t Mutex<Tables>,
    wanted: VecDeque<(Handle, Opened)>,
    /// What the kernel has closed while it was being opened.
    unwanted: VecDeque<(Known, Opened)>,
}

pub(super) enum FileJob {
    Open(Handle, Opened, DaemonNode),
    Close,
}

impl<'t> Files<'t> {
    pub(super) fn new(tables: &'t Mutex<Tables>, wanted: VecDeque<(Handle, Opened)>) -> Self {
        Self { tables, wanted, unwanted: VecDeque::new() }
    }
}

impl Questions for Files<'_> {
    type Job = FileJob;

    fn next(&mut self) -> Option<(FileJob, Question)> {
        if let Some((Known { handle, node }, opened)) = self.unwanted.pop_front() {
            let args = ReleaseIn { fh: handle.0.into(), flags: opened.flags.into(), ..ReleaseIn::new_zeroed() };
            let opcode = if opened.is_dir { Opcode::Releasedir } else { Opcode::Release };
            return Some((FileJob::Close, Question::new(opcode, node, args.as_bytes().into())));
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
            let question = Question::new(opcode, node, args.as_bytes().into());
            return Some((
                FileJob::Open(handle, opened, node),
                Question { uid: opened.uid, gid: opened.gid, ..question },
            ));
        }
    }

    fn answered(&mut self, job: FileJob, answer: Result<Vec<u8>, Errno>) {
        let (FileJob::Open(handle, opened, node), Some(out)) = (job, read::<OpenOut>(answer)) else { return };
        let known = Known { handle: DaemonHandle(out.fh.get()), node };
        if !self.tables.lock().handles.reopened(handle, known) {
            self.unwanted.push_back((known, opened));
        }
    }
}
