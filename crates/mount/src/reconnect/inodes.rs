//! [`Inodes`]: the inodes that the kernel has looked up, with names by which a new daemon can find them.
//!
//! The kernel's numbers are assigned here and never reused; a daemon's are valid for one connection. An inode has the
//! reference counts of the kernel and of the daemon, the identity of its file ([`Identity`]), and a few names. It is
//! removed when the kernel forgets it, so the table is as large as the kernel's.

use std::collections::HashMap;

use crate::request::DirEntryName;
use rustix::io::Errno;
use transom_wire::{NodeId, attr::EntryOut};

/// The most names that are kept of one inode, the newest ones. Any that still leads to the file is good enough.
const NAMES_MAX: usize = 8;

/// A daemon's number of an inode, in the current connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DaemonNode(pub(super) u64);

impl DaemonNode {
    pub(super) const ROOT: Self = Self(NodeId::ROOT.0);
}

/// A time of a file: seconds and nanoseconds.
pub(super) type Time = (u64, u32);

/// Which file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    ino: u64,
    kind: u32,
    /// The newest change time that is known. The file was born before.
    changed: Time,
}

/// References that a daemon is to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forgotten {
    pub(super) daemon: DaemonNode,
    pub(super) count: u64,
}

/// Whether a lookup has found the inode again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupVerdict {
    /// It has.
    Same,
    /// It is another one, or the kernel has forgotten it meanwhile. The daemon's reference is to be dropped.
    Other,
}

#[derive(Debug)]
struct Inode {
    /// The number in the current connection, if the daemon knows it.
    daemon: Option<DaemonNode>,
    /// References that the daemon counts.
    held: u64,
    /// References that the kernel counts.
    nlookup: u64,
    /// The generation that the kernel was told. It does not change.
    generation: u64,
    identity: Identity,
    entry_names: Vec<DirEntryName>,
}

/// All inodes that the kernel has looked up, but for the root.
#[derive(Debug)]
pub(super) struct Inodes {
    inodes: HashMap<NodeId, Inode>,
    by_daemon: HashMap<DaemonNode, NodeId>,
    /// By directory: the inodes of its names.
    names: HashMap<NodeId, HashMap<Box<[u8]>, NodeId>>,
    /// Names that an inode may have, since a rename was not answered.
    maybe: Vec<(DirEntryName, NodeId)>,
    last: NodeId,
}

impl Identity {
    /// Returns the identity of the file in `entry`.
    pub(super) fn of(entry: &EntryOut) -> Self {
        let attr = &entry.attr;
        let changed = (attr.ctime.get(), attr.ctimensec.get());
        Self { ino: attr.ino.get(), kind: attr.mode.get() & libc::S_IFMT, changed }
    }

    /// Returns the file type, as in `st_mode`.
    pub(super) fn kind(&self) -> u32 {
        self.kind
    }

    /// Returns whether `later`, found at a name of this one, is the same file. `None` if only its time of birth can
    /// tell.
    pub(super) fn matches(&self, later: &Self) -> Option<bool> {
        if (self.ino, self.kind) != (later.ino, later.kind) {
            return Some(false);
        }
        // If the number was reused, the new file has a later change time.
        (self.changed == later.changed).then_some(true)
    }

    /// Returns whether a file that was born at `birth` can be this one.
    pub(super) fn is_born_by(&self, birth: Time) -> bool {
        birth <= self.changed
    }
}

impl Default for Inodes {
    fn default() -> Self {
        Self {
            inodes: HashMap::new(),
            by_daemon: HashMap::new(),
            names: HashMap::new(),
            maybe: Vec::new(),
            last: NodeId::ROOT,
        }
    }
}

impl Inodes {
    /// Returns the number of inodes.
    pub(super) fn count(&self) -> usize {
        self.inodes.len()
    }

    /// Adds a reference to the inode of `entry`, which has the name `entry_name` if known. Puts the kernel's number
    /// into `entry`.
    pub(super) fn entered(&mut self, entry: &mut EntryOut, entry_name: Option<DirEntryName>) {
        let daemon = DaemonNode(entry.nodeid.get());
        if daemon == DaemonNode::ROOT {
            return;
        }
        let identity = Identity::of(entry);
        let nodeid = self.by_daemon.get(&daemon).copied().unwrap_or_else(|| {
            self.last.0 += 1;
            self.by_daemon.insert(daemon, self.last);
            self.last
        });
        let inode = self.inodes.entry(nodeid).or_insert_with(|| Inode {
            daemon: Some(daemon),
            held: 0,
            nlookup: 0,
            generation: entry.generation.get(),
            identity,
            entry_names: Vec::new(),
        });
        inode.held += 1;
        inode.nlookup += 1;
        inode.identity = identity;
        (entry.nodeid, entry.generation) = (nodeid.into(), inode.generation.into());
        if let Some(entry_name) = entry_name {
            self.name(nodeid, entry_name);
        }
    }

    /// Returns the daemon's number of an inode.
    ///
    /// # Errors
    /// ESTALE if the current daemon does not know it.
    pub(super) fn daemon_of(&self, nodeid: NodeId) -> Result<DaemonNode, Errno> {
        if nodeid == NodeId::ROOT {
            return Ok(DaemonNode::ROOT);
        }
        self.inodes.get(&nodeid).and_then(|inode| inode.daemon).ok_or(Errno::STALE)
    }

    /// Drops `count` references of the kernel. With the last one, returns the references that the daemon is to drop.
    pub(super) fn forget(&mut self, nodeid: NodeId, count: u64) -> Option<Forgotten> {
        let inode = self.inodes.get_mut(&nodeid)?;
        inode.nlookup = inode.nlookup.saturating_sub(count);
        if inode.nlookup > 0 {
            return None;
        }
        let inode = self.inodes.remove(&nodeid)?;
        for entry_name in &inode.entry_names {
            self.unlist(entry_name);
        }
        for (name, child) in self.names.remove(&nodeid).unwrap_or_default() {
            let entry_name = DirEntryName { parent: nodeid, name };
            if let Some(child) = self.inodes.get_mut(&child) {
                child.entry_names.retain(|other| *other != entry_name);
            }
        }
        let daemon = inode.daemon?;
        if self.by_daemon.get(&daemon) == Some(&nodeid) {
            self.by_daemon.remove(&daemon);
        }
        Some(Forgotten { daemon, count: inode.held })
    }

    /// Notes that `entry_name` is a name of `nodeid`, and of nothing else.
    fn name(&mut self, nodeid: NodeId, entry_name: DirEntryName) {
        let is_held = |nodeid| nodeid == NodeId::ROOT || self.inodes.contains_key(&nodeid);
        if nodeid == NodeId::ROOT || !is_held(nodeid) || !is_held(entry_name.parent) {
            return;
        }
        self.unname(&entry_name);
        let Some(inode) = self.inodes.get_mut(&nodeid) else { return };
        let oldest = (inode.entry_names.len() == NAMES_MAX).then(|| inode.entry_names.remove(0));
        inode.entry_names.push(entry_name.clone());
        if let Some(oldest) = oldest {
            self.unlist(&oldest);
        }
        self.names.entry(entry_name.parent).or_default().insert(entry_name.name, nodeid);
    }

    /// Notes that `entry_name` is not a name of a known inode. Returns the inode that had it.
    pub(super) fn unname(&mut self, entry_name: &DirEntryName) -> Option<NodeId> {
        let nodeid = self.unlist(entry_name)?;
        if let Some(inode) = self.inodes.get_mut(&nodeid) {
            inode.entry_names.retain(|other| other != entry_name);
        }
        Some(nodeid)
    }

    /// Notes that `entry_name` is not a name of `nodeid`.
    pub(super) fn unname_of(&mut self, nodeid: NodeId, entry_name: &DirEntryName) {
        if self.names.get(&entry_name.parent).and_then(|names| names.get(&entry_name.name)) == Some(&nodeid) {
            self.unname(entry_name);
        }
    }

    fn unlist(&mut self, entry_name: &DirEntryName) -> Option<NodeId> {
        let names = self.names.get_mut(&entry_name.parent)?;
        let nodeid = names.remove(&entry_name.name);
        if names.is_empty() {
            self.names.remove(&entry_name.parent);
        }
        nodeid
    }

    /// Notes a rename of `from` to `to`, or an exchange of the two.
    pub(super) fn renamed(&mut self, from: &DirEntryName, to: &DirEntryName, is_exchange: bool) {
        let (moved, replaced) = (self.unname(from), self.unname(to));
        if let Some(moved) = moved {
            self.name(moved, to.clone());
        }
        if let (Some(other), true) = (replaced, is_exchange) {
            self.name(other, from.clone());
        }
    }

    /// Notes a rename that may have happened. The next daemon is asked for both names.
    pub(super) fn maybe_renamed(&mut self, from: &DirEntryName, to: &DirEntryName) {
        for (name, other) in [(from, to), (to, from)] {
            if let Some(&nodeid) = self.names.get(&name.parent).and_then(|names| names.get(&name.name)) {
                self.maybe.push((other.clone(), nodeid));
            }
        }
    }

    /// Notes that the daemon is gone. Its numbers are no longer valid.
    pub(super) fn disconnected(&mut self) {
        self.by_daemon.clear();
        for inode in self.inodes.values_mut() {
            (inode.daemon, inode.held) = (None, 0);
        }
    }

    /// Returns the names in the directory `parent` of inodes, possible names included, that the current daemon does not
    /// know.
    pub(super) fn lost_in(&self, parent: NodeId) -> Vec<(DirEntryName, NodeId)> {
        let names = self.names.get(&parent).into_iter().flatten();
        let known = names.map(|(name, &nodeid)| (DirEntryName { parent, name: name.clone() }, nodeid));
        let maybe = self.maybe.iter().filter(|(entry_name, _)| entry_name.parent == parent).cloned();
        known.chain(maybe).filter(|(_, nodeid)| self.is_lost(*nodeid)).collect()
    }

    /// Returns the number of inodes that the current daemon does not know.
    pub(super) fn lost_count(&self) -> usize {
        self.inodes.values().filter(|inode| inode.daemon.is_none()).count()
    }

    fn is_lost(&self, nodeid: NodeId) -> bool {
        self.inodes.get(&nodeid).is_some_and(|inode| inode.daemon.is_none())
    }

    /// Returns which file `nodeid` is.
    pub(super) fn identity(&self, nodeid: NodeId) -> Option<Identity> {
        self.inodes.get(&nodeid).map(|inode| inode.identity)
    }

    /// Notes that the current daemon knows `nodeid` as `daemon`: looked up at `entry_name`, with one reference.
    pub(super) fn found(&mut self, nodeid: NodeId, daemon: DaemonNode, entry_name: DirEntryName) -> LookupVerdict {
        let Some(inode) = self.inodes.get_mut(&nodeid) else { return LookupVerdict::Other };
        if inode.daemon.is_some_and(|known| known != daemon) {
            return LookupVerdict::Other;
        }
        inode.daemon = Some(daemon);
        inode.held += 1;
        self.by_daemon.entry(daemon).or_insert(nodeid);
        self.name(nodeid, entry_name);
        LookupVerdict::Same
    }

    /// Ends the search: what was not found stays unknown to the current daemon.
    pub(super) fn settle(&mut self) {
        self.maybe.clear();
    }
}
