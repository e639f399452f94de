//! One change of the host, as it waits and is announced.

use transom_wire::{NodeId, agent};

use super::Kind;

/// A change of the host, by nodeids of this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: Kind,
    /// The type of the file as in `d_type` of readdir(3).
    pub file_type: u8,
    /// The directory.
    pub parent: NodeId,
    /// The name in it; empty for the directory itself.
    pub name: Box<[u8]>,
    /// The directory and the name that it was renamed to or exchanged with. Otherwise the file itself and empty, or
    /// `NodeId(0)` if that is not known, or has no name after a removal.
    pub new: (NodeId, Box<[u8]>),
}

impl Change {
    /// Returns a change of the attributes of a directory that is known without a name.
    pub fn of_directory(nodeid: NodeId) -> Self {
        Self::of_name(Kind::Attributes, libc::DT_DIR, nodeid, b"")
    }

    /// Returns a change of a file that is known without a name.
    pub fn of_file(kind: Kind, file_type: u8, nodeid: NodeId) -> Self {
        Self::of_name(kind, file_type, nodeid, b"")
    }

    /// Says which file the name was.
    #[must_use]
    pub fn of_object(mut self, nodeid: Option<NodeId>) -> Self {
        self.new.0 = nodeid.unwrap_or(NodeId(0));
        self
    }

    /// Returns a change that concerns one name.
    pub fn of_name(kind: Kind, file_type: u8, parent: NodeId, name: &[u8]) -> Self {
        Self { kind, file_type, parent, name: name.into(), new: (NodeId(0), Box::default()) }
    }

    /// Returns a rename or an exchange.
    pub fn of_names(kind: Kind, file_type: u8, old: (NodeId, &[u8]), new: (NodeId, &[u8])) -> Self {
        Self { kind, file_type, parent: old.0, name: old.1.into(), new: (new.0, new.1.into()) }
    }

    /// Returns the file whose data or attributes change, if it is known.
    pub(super) fn object(&self) -> NodeId {
        if self.name.is_empty() { self.parent } else { self.new.0 }
    }

    /// Returns the names that it touches; the empty one stands for the file itself.
    pub(super) fn names(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        let new = (self.new.0 != NodeId(0)).then_some((self.new.0, &*self.new.1));
        std::iter::once((self.parent, &*self.name)).chain(new)
    }

    pub(crate) fn as_wire(&self) -> agent::Change<'_> {
        agent::Change {
            kind: self.kind,
            file_type: self.file_type,
            parent: self.parent,
            name: &self.name,
            new_parent: self.new.0,
            new_name: &self.new.1,
        }
    }
}
