//! How each inode is open: by requests, or passed through to a file.
//!
//! The kernel wants one way for all opens of an inode at a time, and one registered file. Opens are counted from before the
//! kernel hears of them until it says RELEASE, so that what it takes for open is counted here, always; between the last RELEASE and
//! the next open the way may change. While the daemon is asked about an inode, its opens wait.
//! No locks, no system calls: `super` has those.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use transom_wire::NodeId;

/// Files that stay registered while nobody has them open, for the next open; what was open last goes last.
const IDLE_MAX: usize = 256;

/// What an open is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A file that the kernel knows by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backing {
    pub(super) id: i32,
    /// The file's device and inode number.
    pub(super) identity: (u64, u64),
    /// The daemon has shown that it may write the file.
    pub(super) is_writable: bool,
    /// It keeps nobody from anything, and may stay registered.
    pub(super) may_idle: bool,
}

/// How an open is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// As the daemon has answered; `may_cache` unless the kernel's cache may be older than the file.
    Ordinary { may_cache: bool },
    /// Passed through to the file of this number.
    Passed(i32),
}

/// What the daemon is to be asked for: the file of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) nodeid: NodeId,
    pub(crate) access: Access,
}

/// What becomes of an open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<W> {
    Answer(W, Answer),
    /// It waits, and the daemon is to be asked.
    Ask(Ask),
    /// It waits for a question that was asked already.
    Wait,
}

/// What the daemon's answer has come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A file, registered just now. Only where [`Inodes::backing`] had none.
    Registered(Backing),
    /// The file that is registered, in a way that shows that it may be written.
    Writable,
    Nothing,
}

/// What is to be done after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome<W> {
    pub(super) answers: Vec<(W, Answer)>,
    pub(super) ask: Option<Ask>,
    /// Not to stay registered.
    pub(super) close: Option<i32>,
}

/// All inodes that are open, and some that were. `W` is an open that waits.
pub(super) struct Inodes<W> {
    inodes: HashMap<NodeId, Inode<W>>,
    /// Inodes with a file and without opens, by when they were open last.
    idle: BTreeMap<u64, NodeId>,
    now: u64,
    /// Inodes that were passed through since the kernel got to know them.
    passed: BTreeSet<NodeId>,
}

struct Inode<W> {
    opens: u64,
    backing: Option<Backing>,
    /// Opens that wait for the daemon's answer; nothing while it is not asked.
    waiting: Option<Vec<(Access, W)>>,
    idle_since: Option<u64>,
}

impl<W> Default for Inode<W> {
    fn default() -> Self {
        Self { opens: 0, backing: None, waiting: None, idle_since: None }
    }
}

impl<W> Default for Inodes<W> {
    fn default() -> Self {
        Self { inodes: HashMap::new(), idle: BTreeMap::new(), now: 0, passed: BTreeSet::new() }
    }
}

impl<W> Inodes<W> {
    /// The daemon has opened `nodeid` for `open`.
    pub(super) fn open(&mut self, nodeid: NodeId, access: Access, open: W) -> Next<W> {
        let inode = self.inodes.entry(nodeid).or_default();
        if let Some(since) = inode.idle_since.take() {
            self.idle.remove(&since);
        }
        if let Some(waiting) = &mut inode.waiting {
            waiting.push((access, open));
            return Next::Wait;
        }
        match inode.backing {
            Some(backing) if backing.is_writable || access == Access::Read => {
                inode.opens += 1;
                Next::Answer(open, Answer::Passed(backing.id))
            }
            None if inode.opens > 0 => {
                inode.opens += 1;
                Next::Answer(open, Answer::Ordinary { may_cache: !self.passed.contains(&nodeid) })
            }
            _ => {
                inode.waiting = Some(vec![(access, open)]);
                Next::Ask(Ask { nodeid, access })
            }
        }
    }

    /// As [`Self::open`], for an open that cannot be passed through.
    pub(super) fn open_ordinary(&mut self, nodeid: NodeId) -> Answer {
        let inode = self.inodes.entry(nodeid).or_default();
        if let Some(since) = inode.idle_since.take() {
            self.idle.remove(&since);
        }
        inode.opens += 1;
        Answer::Ordinary { may_cache: !self.passed.contains(&nodeid) }
    }

    /// The file that is registered for `nodeid`; it stays while the daemon is asked about the inode.
    pub(super) fn backing(&self, nodeid: NodeId) -> Option<Backing> {
        self.inodes.get(&nodeid)?.backing
    }

    /// The daemon's answer to an [`Ask`].
    pub(super) fn answered(&mut self, ask: Ask, found: Found) -> Outcome<W> {
        let mut outcome = Outcome { answers: Vec::new(), ask: None, close: None };
        let Some(inode) = self.inodes.get_mut(&ask.nodeid) else { return outcome };
        let Some(waiting) = inode.waiting.take() else { return outcome };
        match found {
            // Opens that cannot be passed through have come first.
            Found::Registered(backing) if inode.opens > 0 => outcome.close = Some(backing.id),
            Found::Registered(backing) => {
                self.passed.insert(ask.nodeid);
                inode.backing = Some(backing);
            }
            Found::Writable => inode.backing.iter_mut().for_each(|backing| backing.is_writable = true),
            // Nobody has it open by the file, so that all can do without.
            Found::Nothing if inode.opens == 0 => outcome.close = inode.backing.take().map(|backing| backing.id),
            Found::Nothing => {}
        }
        let may_cache = !self.passed.contains(&ask.nodeid);
        let mut writers = Vec::new();
        for (access, open) in waiting {
            let answer = match inode.backing {
                Some(backing) if backing.is_writable || access == Access::Read => Answer::Passed(backing.id),
                // The answer was about reading.
                Some(_) if ask.access == Access::Read => {
                    writers.push((access, open));
                    continue;
                }
                // Where others have the file, the kernel fails this open with EIO: there is no other way.
                _ => Answer::Ordinary { may_cache },
            };
            inode.opens += 1;
            outcome.answers.push((open, answer));
        }
        if !writers.is_empty() {
            inode.waiting = Some(writers);
            outcome.ask = Some(Ask { access: Access::Write, ..ask });
        }
        outcome.close = outcome.close.or_else(|| self.settle(ask.nodeid));
        outcome
    }

    /// The kernel has closed an open file; gives what is not to stay registered.
    pub(super) fn release(&mut self, nodeid: NodeId) -> Option<i32> {
        let inode = self.inodes.get_mut(&nodeid)?;
        inode.opens = inode.opens.saturating_sub(1);
        self.settle(nodeid)
    }

    /// The kernel has forgotten the inode; gives what is not to stay registered.
    pub(super) fn forget(&mut self, nodeid: NodeId) -> Option<i32> {
        self.passed.remove(&nodeid);
        let since = self.inodes.get(&nodeid)?.idle_since?;
        self.idle.remove(&since);
        self.inodes.remove(&nodeid)?.backing.map(|backing| backing.id)
    }

    /// An inode without opens goes, or waits for the next one.
    fn settle(&mut self, nodeid: NodeId) -> Option<i32> {
        let inode = self.inodes.get_mut(&nodeid)?;
        if inode.opens > 0 || inode.waiting.is_some() || inode.idle_since.is_some() {
            return None;
        }
        if !inode.backing.is_some_and(|backing| backing.may_idle) {
            return self.inodes.remove(&nodeid)?.backing.map(|backing| backing.id);
        }
        self.now += 1;
        inode.idle_since = Some(self.now);
        self.idle.insert(self.now, nodeid);
        if self.idle.len() <= IDLE_MAX {
            return None;
        }
        let (_, oldest) = self.idle.pop_first()?;
        self.inodes.remove(&oldest)?.backing.map(|backing| backing.id)
    }
}

#[cfg(test)]
#[path = "inodes_test.rs"]
mod tests;
