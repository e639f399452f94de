//! A request that may change something, as a file system sees it before and after it serves it.

use std::cell::Cell;

use transom_wire::{
    Name, NodeId, Unique,
    operation::{Changed, Row},
    own_changes::Trailer,
};
use zerocopy::{FromBytes, little_endian::U64};

use super::BlockingMode;

/// A request that the table says to change something, for [`FileSystem::changing`](super::FileSystem::changing).
#[derive(Debug, Clone, Copy)]
pub struct Changing<'a> {
    /// The operation's row.
    pub row: &'static Row,
    /// The request's identifier.
    pub unique: Unique,
    /// The inode in the header.
    pub nodeid: NodeId,
    /// The arguments.
    pub args: &'a [u8],
    /// The names in the request, in their order.
    pub names: [Option<Name<'a>>; 2],
    /// Whether it may block.
    pub blocking: BlockingMode,
    /// Where to note how slots of the version table were raised, if the guest is to be told.
    pub own_changes: Option<&'a Cell<Trailer>>,
}

impl Changing<'_> {
    /// Returns what the request changes if it succeeds.
    pub fn changes(&self) -> impl Iterator<Item = Changed> {
        self.row.changes_of(self.args)
    }

    /// Returns the inode in the arguments, if the operation names one there.
    pub fn argument(&self) -> Option<NodeId> {
        self.row.nodeids.first().map(|&at| NodeId(self.word(at)))
    }

    /// Returns the open files that the request names, in their order in the arguments.
    pub fn handles(&self) -> impl DoubleEndedIterator<Item = transom_wire::Handle> {
        let named = self.row.handles.iter().filter(|handle| handle.when.holds(self.args));
        named.map(|handle| transom_wire::Handle(self.word(handle.at)))
    }

    /// Returns a field of the arguments, or 0 beyond their end.
    fn word(&self, at: usize) -> u64 {
        let field = self.args.get(at..).and_then(|rest| U64::read_from_prefix(rest).ok());
        field.map_or(0, |(value, _)| value.get())
    }
}
