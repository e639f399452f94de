//! The inodes that the kernel holds, with names by which a new daemon can be asked for them.
//!
//! The kernel's numbers are this table's and are never given twice; a daemon's hold for one connection. Of an inode it is known
//! how often the kernel and how often the daemon count it, which file it is ([`Identity`]), and a few names. Everything goes
//! when the kernel forgets it, so the table is as large as what the kernel keeps.

use std::collections::HashMap;

use rustix::io::Errno;
use transom_wire::{NodeId, attr::EntryOut};

/// Names that are kept of one inode, the newest; any that still leads to it serves.
const NAMES_MAX: usize = 8;

/// A daemon's number for an inode, in the present connection.
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
    /// When it was last changed, as far as this side knows: it was born before.
    changed: Time,
}

/// A name in a directory of the kernel's number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) parent: NodeId,
    pub(super) name: Box<[u8]>,
}

/// References that a daemon is to be told to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forgotten {
    pub(super) daemon: DaemonNode,
    pub(super) count: u64,
}

/// What an inode that was looked up anew turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The one that was meant.
    Same,
    /// Another one, or the kernel has forgotten it meanwhile: the reference is not wanted.
    Other,
}

#[derive(Debug)]
struct Inode {
    /// In the present connection, if it is known there.
    daemon: Option<DaemonNode>,
    /// References that the daemon counts.
    held: u64,
    /// References that the kernel counts.
    nlookup: u64,
    /// What the kernel was told; it stays.
    generation: u64,
    identity: Identity,
    places: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct Inodes {
    inodes: HashMap<NodeId, Inode>,
    by_daemon: HashMap<DaemonNode, NodeId>,
    /// By directory: what its names stand for.
    names: HashMap<NodeId, HashMap<Box<[u8]>, NodeId>>,
    /// Names that may stand for an inode since a rename was not answered.
    maybe: Vec<(Place, NodeId)>,
    last: NodeId,
}

impl Identity {
    pub(super) fn of(entry: &EntryOut) -> Self {
        let attr = &entry.attr;
        let changed = (attr.ctime.get(), attr.ctimensec.get());
        Self { ino: attr.ino.get(), kind: attr.mode.get() & libc::S_IFMT, changed }
    }

    /// Of `st_mode`, the type.
    pub(super) fn kind(&self) -> u32 {
        self.kind
    }

    /// Whether `later`, found at a name of this one, can be the same file; nothing where it takes its time of birth to tell.
    pub(super) fn matches(&self, later: &Self) -> Option<bool> {
        if (self.ino, self.kind) != (later.ino, later.kind) {
            return Some(false);
        }
        // A file with a number that was used again has been changed, if only by its birth.
        (self.changed == later.changed).then_some(true)
    }

    /// Whether a file that was born then can be this one.
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
    /// Inodes that the kernel holds, but for the root.
    pub(super) fn count(&self) -> usize {
        self.inodes.len()
    }

    /// The daemon has given `entry` to the kernel, at `place` if that is known; changes it into what the kernel is to get.
    pub(super) fn entered(&mut self, entry: &mut EntryOut, place: Option<Place>) {
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
            places: Vec::new(),
        });
        inode.held += 1;
        inode.nlookup += 1;
        inode.identity = identity;
        (entry.nodeid, entry.generation) = (nodeid.into(), inode.generation.into());
        if let Some(place) = place {
            self.name(nodeid, place);
        }
    }

    /// The daemon's number of an inode. Errors: ESTALE where the present daemon has none.
    pub(super) fn daemon_of(&self, nodeid: NodeId) -> Result<DaemonNode, Errno> {
        if nodeid == NodeId::ROOT {
            return Ok(DaemonNode::ROOT);
        }
        self.inodes.get(&nodeid).and_then(|inode| inode.daemon).ok_or(Errno::STALE)
    }

    /// The kernel drops references; with the last the daemon's go.
    pub(super) fn forget(&mut self, nodeid: NodeId, count: u64) -> Option<Forgotten> {
        let inode = self.inodes.get_mut(&nodeid)?;
        inode.nlookup = inode.nlookup.saturating_sub(count);
        if inode.nlookup > 0 {
            return None;
        }
        let inode = self.inodes.remove(&nodeid)?;
        for place in &inode.places {
            self.unlist(place);
        }
        for (name, child) in self.names.remove(&nodeid).unwrap_or_default() {
            let place = Place { parent: nodeid, name };
            if let Some(child) = self.inodes.get_mut(&child) {
                child.places.retain(|other| *other != place);
            }
        }
        let daemon = inode.daemon?;
        if self.by_daemon.get(&daemon) == Some(&nodeid) {
            self.by_daemon.remove(&daemon);
        }
        Some(Forgotten { daemon, count: inode.held })
    }

    /// `place` stands for `nodeid` now, and for nothing else.
    fn name(&mut self, nodeid: NodeId, place: Place) {
        let is_held = |nodeid| nodeid == NodeId::ROOT || self.inodes.contains_key(&nodeid);
        if nodeid == NodeId::ROOT || !is_held(nodeid) || !is_held(place.parent) {
            return;
        }
        self.unname(&place);
        let Some(inode) = self.inodes.get_mut(&nodeid) else { return };
        let oldest = (inode.places.len() == NAMES_MAX).then(|| inode.places.remove(0));
        inode.places.push(place.clone());
        if let Some(oldest) = oldest {
            self.unlist(&oldest);
        }
        self.names.entry(place.parent).or_default().insert(place.name, nodeid);
    }

    /// `place` stands for nothing that is known.
    pub(super) fn unname(&mut self, place: &Place) -> Option<NodeId> {
        let nodeid = self.unlist(place)?;
        if let Some(inode) = self.inodes.get_mut(&nodeid) {
            inode.places.retain(|other| other != place);
        }
        Some(nodeid)
    }

    /// `place` does not stand for `nodeid`, as was thought.
    pub(super) fn unname_of(&mut self, nodeid: NodeId, place: &Place) {
        if self.names.get(&place.parent).and_then(|names| names.get(&place.name)) == Some(&nodeid) {
            self.unname(place);
        }
    }

    fn unlist(&mut self, place: &Place) -> Option<NodeId> {
        let names = self.names.get_mut(&place.parent)?;
        let nodeid = names.remove(&place.name);
        if names.is_empty() {
            self.names.remove(&place.parent);
        }
        nodeid
    }

    /// What was at `from` is at `to`; with `is_exchange` the other way round too.
    pub(super) fn renamed(&mut self, from: &Place, to: &Place, is_exchange: bool) {
        let (moved, replaced) = (self.unname(from), self.unname(to));
        if let Some(moved) = moved {
            self.name(moved, to.clone());
        }
        if let (Some(other), true) = (replaced, is_exchange) {
            self.name(other, from.clone());
        }
    }

    /// Whether that has happened is not known: both names are tried when the next daemon is asked.
    pub(super) fn maybe_renamed(&mut self, from: &Place, to: &Place) {
        for (name, other) in [(from, to), (to, from)] {
            if let Some(&nodeid) = self.names.get(&name.parent).and_then(|names| names.get(&name.name)) {
                self.maybe.push((other.clone(), nodeid));
            }
        }
    }

    /// The daemon is gone, and its numbers with it.
    pub(super) fn disconnected(&mut self) {
        self.by_daemon.clear();
        for inode in self.inodes.values_mut() {
            (inode.daemon, inode.held) = (None, 0);
        }
    }

    /// What is not known to the present daemon of what the names in a directory stand, or may stand, for.
    pub(super) fn lost_in(&self, parent: NodeId) -> Vec<(Place, NodeId)> {
        let names = self.names.get(&parent).into_iter().flatten();
        let known = names.map(|(name, &nodeid)| (Place { parent, name: name.clone() }, nodeid));
        let maybe = self.maybe.iter().filter(|(place, _)| place.parent == parent).cloned();
        known.chain(maybe).filter(|(_, nodeid)| self.is_lost(*nodeid)).collect()
    }

    /// Inodes that the present daemon does not know.
    pub(super) fn lost_count(&self) -> usize {
        self.inodes.values().filter(|inode| inode.daemon.is_none()).count()
    }

    fn is_lost(&self, nodeid: NodeId) -> bool {
        self.inodes.get(&nodeid).is_some_and(|inode| inode.daemon.is_none())
    }

    pub(super) fn identity(&self, nodeid: NodeId) -> Option<Identity> {
        self.inodes.get(&nodeid).map(|inode| inode.identity)
    }

    /// The present daemon knows `nodeid` as `daemon`, which it was asked for at `place` and counts once.
    pub(super) fn found(&mut self, nodeid: NodeId, daemon: DaemonNode, place: Place) -> Found {
        let Some(inode) = self.inodes.get_mut(&nodeid) else { return Found::Other };
        if inode.daemon.is_some_and(|known| known != daemon) {
            return Found::Other;
        }
        inode.daemon = Some(daemon);
        inode.held += 1;
        self.by_daemon.entry(daemon).or_insert(nodeid);
        self.name(nodeid, place);
        Found::Same
    }

    /// Nothing more is looked for: what was not found stays unknown to this daemon.
    pub(super) fn settle(&mut self) {
        self.maybe.clear();
    }
}
