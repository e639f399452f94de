//! What is announced to the agent: each change until it is swallowed once, or until the next exchange.
//!
//! No two changes of a batch touch the same name, so a request identifies its change by directory and name, and the
//! requests for a file that was found under the name identify it by nodeid.

use rustix::fs::FileType;
use transom_wire::{NodeId, ops::setattr::SetattrValid};

use super::{Change, Kind};
use std::time::Instant;

/// A directory and a name in it.
pub(crate) type Named<'a> = (NodeId, &'a [u8]);

/// Changes that the agent may replay now.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    changes: Vec<Announced>,
    /// When the changes were queued, until they are acknowledged.
    queued: Vec<Instant>,
}

#[derive(Debug)]
struct Announced {
    change: Change,
    /// The file that was found under the name, for changes of data and attributes.
    nodeid: Option<NodeId>,
    is_opened: bool,
    is_link_counted: bool,
    is_swallowed: bool,
}

/// What a name is to the change that it is looked up for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// The name is created: it has to look absent.
    New,
    /// The name was removed: it has to look as before.
    Old {
        /// Whether it was a directory.
        file_type: u8,
    },
    /// The name was renamed: it has to look as the new name does now.
    RenamedTo {
        /// Where the file is now.
        now: (NodeId, Box<[u8]>),
        /// Its type.
        file_type: u8,
    },
    /// Another name was renamed to this one: it has to look as before.
    Replaced,
    /// The file was changed.
    Changed,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether a change touches a name that an announced one touches.
    pub(super) fn conflicts(&self, change: &Change) -> bool {
        self.changes
            .iter()
            .any(|announced| announced.change.names().any(|name| change.names().any(|other| other == name)))
    }

    /// Announces a change. `seen` is the inode that the guest found under the name: while its cache is valid, it does
    /// not look the name up again. `queued` is when the change was.
    pub(super) fn add(&mut self, change: Change, seen: Option<NodeId>, queued: Instant) {
        self.queued.push(queued);
        let nodeid = if change.name.is_empty() { Some(change.parent) } else { seen };
        self.changes.push(Announced { change, nodeid, is_opened: false, is_link_counted: false, is_swallowed: false });
    }

    /// Returns when each change was queued, the first time that it is called.
    pub(super) fn take_unacknowledged(&mut self) -> Vec<Instant> {
        std::mem::take(&mut self.queued)
    }

    /// Returns what a name is that the agent looks up, or `None` if no change that is left touches it.
    pub(crate) fn role(&self, parent: NodeId, name: &[u8]) -> Option<Role> {
        let is_it = |other: Named<'_>| other == (parent, name);
        let change = self.left().map(|left| &left.change).find(|change| change.names().any(is_it))?;
        let is_old = is_it((change.parent, &change.name));
        let file_type = change.file_type;
        Some(match change.kind {
            Kind::Created => Role::New,
            Kind::Removed => Role::Old { file_type },
            Kind::Renamed if is_old => Role::RenamedTo { now: change.new.clone(), file_type },
            Kind::Renamed => Role::Replaced,
            Kind::Exchanged if is_old => Role::RenamedTo { now: change.new.clone(), file_type },
            Kind::Exchanged => {
                Role::RenamedTo { now: (change.parent, change.name.clone()), file_type: libc::DT_UNKNOWN }
            }
            Kind::Modified | Kind::Written | Kind::Closed | Kind::Attributes | Kind::Stale => Role::Changed,
        })
    }

    /// Remembers which file a changed name is.
    pub(crate) fn found(&mut self, parent: NodeId, name: &[u8], nodeid: NodeId) {
        let is_it = |change: &Change| (change.parent, &*change.name) == (parent, name);
        if let Some(left) = self.left_mut().find(|left| is_it(&left.change)) {
            left.nodeid = Some(nodeid);
        }
    }

    /// Swallows a creation; returns whether it was announced.
    pub(crate) fn make(&mut self, parent: NodeId, name: &[u8], file_type: FileType) -> bool {
        self.swallow(|change| {
            change.kind == Kind::Created
                && (change.parent, &*change.name) == (parent, name)
                && FileType::from_raw_mode(u32::from(change.file_type) << 12) == file_type
        })
    }

    /// Swallows a removal; returns whether it was announced.
    pub(crate) fn remove(&mut self, parent: NodeId, name: &[u8], is_directory: bool) -> bool {
        self.swallow(|change| {
            change.kind == Kind::Removed
                && (change.parent, &*change.name) == (parent, name)
                && (change.file_type == libc::DT_DIR) == is_directory
        })
    }

    /// Returns whether the removal of a name of this file is announced, which has others; once.
    pub(crate) fn count_link(&mut self, nodeid: NodeId) -> bool {
        let is_it = |change: &Change| change.kind == Kind::Removed && change.new.0 == nodeid;
        let found = self.left_mut().find(|left| is_it(&left.change) && !left.is_link_counted);
        found.map(|left| left.is_link_counted = true).is_some()
    }

    /// Swallows a rename or an exchange; returns whether it was announced.
    pub(crate) fn rename(&mut self, old: Named<'_>, new: Named<'_>, is_exchange: bool) -> bool {
        let kind = if is_exchange { Kind::Exchanged } else { Kind::Renamed };
        self.swallow(|change| {
            change.kind == kind && (change.parent, &*change.name) == old && (change.new.0, &*change.new.1) == new
        })
    }

    /// Swallows the open of a file whose data changed; returns whether that was announced.
    pub(crate) fn open(&mut self, nodeid: NodeId) -> bool {
        let is_data = |change: &Change| matches!(change.kind, Kind::Modified | Kind::Written | Kind::Closed);
        let found =
            self.left_mut().find(|left| left.nodeid == Some(nodeid) && is_data(&left.change) && !left.is_opened);
        let Some(left) = found else { return false };
        left.is_opened = true;
        left.is_swallowed = left.change.kind == Kind::Closed;
        true
    }

    /// Swallows a change of attributes; returns whether it was announced. The times of a file whose data changed follow
    /// its open.
    pub(crate) fn set_attributes(&mut self, nodeid: NodeId, valid: SetattrValid) -> bool {
        let is_of_times = valid.contains(SetattrValid::MTIME) && !valid.contains(SetattrValid::SIZE);
        let is_of_mode = valid.intersects(SetattrValid::MODE | SetattrValid::UID | SetattrValid::GID);
        let found = self.left_mut().find(|left| {
            left.nodeid == Some(nodeid)
                && match left.change.kind {
                    Kind::Modified | Kind::Written => left.is_opened && is_of_times,
                    Kind::Attributes => is_of_mode,
                    Kind::Created | Kind::Removed | Kind::Renamed | Kind::Exchanged | Kind::Closed | Kind::Stale => {
                        false
                    }
                }
        });
        found.map(|left| left.is_swallowed = true).is_some()
    }

    fn swallow(&mut self, is_it: impl Fn(&Change) -> bool) -> bool {
        let found = self.left_mut().find(|left| is_it(&left.change));
        found.map(|left| left.is_swallowed = true).is_some()
    }

    fn left(&self) -> impl Iterator<Item = &Announced> {
        self.changes.iter().filter(|announced| !announced.is_swallowed)
    }

    fn left_mut(&mut self) -> impl Iterator<Item = &mut Announced> {
        self.changes.iter_mut().filter(|announced| !announced.is_swallowed)
    }
}
