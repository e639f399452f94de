//! A request of the kernel, as stages read it: its header, its arguments, and the names that it is about.
//!
//! Source: linux/include/uapi/linux/fuse.h; the structures are those of `transom_wire::ops`.

use transom_wire::{Handle, NodeId, Opcode, header::InHeader, operation::Effect};
use zerocopy::FromBytes as _;

/// A name in a directory, which has the kernel's number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DirEntryName {
    pub(crate) parent: NodeId,
    pub(crate) name: Box<[u8]>,
}

/// A request of the kernel, in memory of our own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'m> {
    pub(crate) header: InHeader,
    pub(crate) opcode: Option<Opcode>,
    pub(crate) args: &'m [u8],
}

impl<'m> Request<'m> {
    /// Returns the request in `message`, or `None` if it has no header.
    pub(crate) fn new(message: &'m [u8]) -> Option<Self> {
        let (header, args) = InHeader::read_from_prefix(message).ok()?;
        Some(Self { header, opcode: Opcode::from_u32(header.opcode.get()), args })
    }

    pub(crate) fn nodeid(&self) -> NodeId {
        self.header.nodeid.into()
    }

    /// The number at an offset of the arguments; 0 behind their end, which is nobody's number.
    pub(crate) fn long(&self, offset: usize) -> u64 {
        self.args.get(offset..offset + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub(crate) fn word(&self, offset: usize) -> u32 {
        self.args.get(offset..offset + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// What the operation does to names and open files: nothing that is known of one that the table does not have.
    pub(crate) fn effect(&self) -> Effect {
        self.opcode.map_or(Effect::None, |opcode| opcode.row().effect)
    }

    /// Whether it may be sent again if nobody knows whether it was done.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.opcode.is_some_and(|opcode| opcode.row().repeats.holds(self.args))
    }

    /// Returns the first open file that the arguments name, or 0, which is no file's handle.
    pub(crate) fn handle(&self) -> Handle {
        let row = self.opcode.map(Opcode::row);
        Handle(row.and_then(|row| row.handles.first()).map_or(0, |handle| self.long(handle.at)))
    }

    /// The name that follows the arguments, in the directory that the request is about.
    pub(crate) fn entry_name(&self) -> Option<DirEntryName> {
        let name = name_at(self.args, self.opcode?.row().args_len)?;
        (name != b"." && name != b"..").then(|| DirEntryName { parent: self.nodeid(), name: name.into() })
    }

    /// From where and to where, of a request that renames.
    pub(crate) fn rename(&self) -> Option<(DirEntryName, DirEntryName)> {
        let row = self.opcode?.row();
        let &[new_parent_at] = row.nodeids else { return None };
        if row.effect != Effect::Renames {
            return None;
        }
        let from = self.entry_name()?;
        let name = name_at(self.args, row.args_len + from.name.len() + 1)?;
        let parent = NodeId(self.long(new_parent_at));
        Some((from, DirEntryName { parent, name: name.into() }))
    }
}

fn name_at(args: &[u8], offset: usize) -> Option<&[u8]> {
    let bytes = args.get(offset..)?;
    bytes.split(|&byte| byte == 0).next().filter(|name| !name.is_empty() && name.len() < bytes.len())
}
