//! [`Inodes`]: how each inode is open: served by requests, or passed through to a backing file.
//!
//! The kernel requires that all opens of an inode use the same way at a time, and the same backing file. Opens are
//! counted from before the kernel gets the reply until its RELEASE, so every open that the kernel knows of is counted.
//! The way may change between the last RELEASE and the next open. While the daemon is asked for an inode's file, opens
//! of the inode wait. No locks, no system calls: `super` has those.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use transom_wire::NodeId;

/// The most backing files that stay registered while not open, for the next open. The least recently used goes first.
const IDLE_MAX: usize = 256;

/// What an open is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A registered backing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backing {
    /// The kernel's id of the registration.
    pub(super) id: i32,
    /// The file's device and inode number.
    pub(super) identity: (u64, u64),
    /// Whether the daemon has shown that it may write the file.
    pub(super) is_writable: bool,
    /// Whether it may stay registered while not open. A file that is registered for writing could not be executed.
    pub(super) may_idle: bool,
}

/// How an open is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenAnswer {
    /// Served by requests. `may_cache` unless the kernel's cache may be older than the file.
    Ordinary { may_cache: bool },
    /// Passed through to the backing file with this id.
    Passed(i32),
}

/// A request to the daemon for the file of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackingFileRequest {
    pub(crate) nodeid: NodeId,
    pub(crate) access: Access,
}

/// What to do about an open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<W> {
    /// Reply to it.
    Answer(W, OpenAnswer),
    /// It waits. The request is to be sent.
    Request(BackingFileRequest),
    /// It waits for a request that was made before.
    Wait,
}

/// The result of a [`BackingFileRequest`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BackingVerdict {
    /// A file that was just registered. Only if [`Inodes::backing`] returned none.
    Registered(Backing),
    /// The registered file, with a descriptor that shows that the daemon may write it.
    Writable,
    /// No file that can be used.
    Nothing,
}

/// What to do after a request is done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SettledOpens<W> {
    /// Opens to reply to.
    pub(super) answers: Vec<(W, OpenAnswer)>,
    /// Another request to send.
    pub(super) request: Option<BackingFileRequest>,
    /// A backing file to unregister.
    pub(super) unused: Option<i32>,
}

/// All inodes that are open, and some that were. `W` is an open that can wait.
pub(super) struct Inodes<W> {
    inodes: HashMap<NodeId, Inode<W>>,
    /// Inodes with a backing file and without opens, by when they were last open.
    idle: BTreeMap<u64, NodeId>,
    now: u64,
    /// Inodes that were passed through since the kernel looked them up.
    passed: BTreeSet<NodeId>,
}

struct Inode<W> {
    opens: u64,
    backing: Option<Backing>,
    /// Opens that wait for the daemon's file; `None` if it was not requested.
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
    /// Handles `open`, for which the daemon has opened `nodeid`.
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
                Next::Answer(open, OpenAnswer::Passed(backing.id))
            }
            None if inode.opens > 0 => {
                inode.opens += 1;
                Next::Answer(open, OpenAnswer::Ordinary { may_cache: !self.passed.contains(&nodeid) })
            }
            _ => {
                inode.waiting = Some(vec![(access, open)]);
                Next::Request(BackingFileRequest { nodeid, access })
            }
        }
    }

    /// Handles an open that cannot be passed through.
    pub(super) fn open_ordinary(&mut self, nodeid: NodeId) -> OpenAnswer {
        let inode = self.inodes.entry(nodeid).or_default();
        if let Some(since) = inode.idle_since.take() {
            self.idle.remove(&since);
        }
        inode.opens += 1;
        OpenAnswer::Ordinary { may_cache: !self.passed.contains(&nodeid) }
    }

    /// Returns the backing file of `nodeid`. It stays registered while a request for the inode is in flight.
    pub(super) fn backing(&self, nodeid: NodeId) -> Option<Backing> {
        self.inodes.get(&nodeid)?.backing
    }

    /// Handles the result of `request`.
    pub(super) fn request_done(&mut self, request: BackingFileRequest, found: BackingVerdict) -> SettledOpens<W> {
        let mut outcome = SettledOpens { answers: Vec::new(), request: None, unused: None };
        let Some(inode) = self.inodes.get_mut(&request.nodeid) else { return outcome };
        let Some(waiting) = inode.waiting.take() else { return outcome };
        match found {
            // Opens that cannot be passed through came first.
            BackingVerdict::Registered(backing) if inode.opens > 0 => outcome.unused = Some(backing.id),
            BackingVerdict::Registered(backing) => {
                self.passed.insert(request.nodeid);
                inode.backing = Some(backing);
            }
            BackingVerdict::Writable => inode.backing.iter_mut().for_each(|backing| backing.is_writable = true),
            // No open uses the backing file, so all can do without it.
            BackingVerdict::Nothing if inode.opens == 0 => {
                outcome.unused = inode.backing.take().map(|backing| backing.id)
            }
            BackingVerdict::Nothing => {}
        }
        let may_cache = !self.passed.contains(&request.nodeid);
        let mut writers = Vec::new();
        for (access, open) in waiting {
            let answer = match inode.backing {
                Some(backing) if backing.is_writable || access == Access::Read => OpenAnswer::Passed(backing.id),
                // The request was for reading.
                Some(_) if request.access == Access::Read => {
                    writers.push((access, open));
                    continue;
                }
                // If other opens use a backing file, the kernel fails this one with EIO. There is no other way.
                _ => OpenAnswer::Ordinary { may_cache },
            };
            inode.opens += 1;
            outcome.answers.push((open, answer));
        }
        if !writers.is_empty() {
            inode.waiting = Some(writers);
            outcome.request = Some(BackingFileRequest { access: Access::Write, ..request });
        }
        outcome.unused = outcome.unused.or_else(|| self.settle(request.nodeid));
        outcome
    }

    /// Handles a RELEASE. Returns a backing file to unregister.
    pub(super) fn release(&mut self, nodeid: NodeId) -> Option<i32> {
        let inode = self.inodes.get_mut(&nodeid)?;
        inode.opens = inode.opens.saturating_sub(1);
        self.settle(nodeid)
    }

    /// Handles a FORGET. Returns a backing file to unregister.
    pub(super) fn forget(&mut self, nodeid: NodeId) -> Option<i32> {
        self.passed.remove(&nodeid);
        let since = self.inodes.get(&nodeid)?.idle_since?;
        self.idle.remove(&since);
        self.inodes.remove(&nodeid)?.backing.map(|backing| backing.id)
    }

    /// Removes an inode without opens, or keeps it for the next open. Returns a backing file to unregister.
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
