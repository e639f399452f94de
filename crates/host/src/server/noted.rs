//! A request as a file system sees it that records what the driver has, before and after the request is served.

use transom_wire::{Name, NodeId, Unique, operation::Row};

/// A request, for [`FileSystem::note_before`](super::FileSystem::note_before).
#[derive(Debug, Clone, Copy)]
pub struct Noted<'a> {
    /// The operation's row.
    pub row: &'static Row,
    /// The request's identifier.
    pub unique: Unique,
    /// The inode in the header, by the driver's number.
    pub nodeid: NodeId,
    /// The arguments. Inodes have the file system's own numbers.
    pub args: &'a [u8],
    /// The names in the request, in their order.
    pub names: [Option<Name<'a>>; 2],
}
