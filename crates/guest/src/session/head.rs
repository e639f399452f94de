//! The head of a request: header, arguments and names, built on the sender's stack.

use transom_wire::{
    Name, NodeId, Opcode, Unique,
    extension::{EXT_GROUPS, ExtHeader},
    header::InHeader,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U32};

use super::Caller;

/// Room for a header and fixed arguments.
pub(crate) const PLAIN: usize = 128;
/// Room for a header, arguments, one name and an extension.
pub(crate) const NAMED: usize = size_of::<InHeader>() + 16 + NAME_ROOM + size_of::<GroupExtension>();
/// Room for a header, arguments and two names.
pub(crate) const TWICE_NAMED: usize = size_of::<InHeader>() + 16 + 2 * NAME_ROOM;
/// A name of 255 bytes and its NUL.
const NAME_ROOM: usize = 256;

/// Header, arguments and names of a request, on the stack.
pub(crate) struct Head<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// The extension that carries one supplementary group.
#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupExtension {
    header: ExtHeader,
    count: U32,
    gid: U32,
}
const _: () = assert!(size_of::<GroupExtension>() == 16);

impl GroupExtension {
    pub(super) fn new(gid: u32) -> Self {
        let header = ExtHeader { size: (size_of::<Self>() as u32).into(), type_: EXT_GROUPS.into() };
        Self { header, count: 1.into(), gid: gid.into() }
    }
}

impl<const N: usize> Head<N> {
    /// Begins a request for `node`.
    pub(crate) fn new(opcode: Opcode, node: NodeId, caller: &Caller<'_>) -> Self {
        let mut head = Self { bytes: [0; N], len: 0 };
        head.push(header(opcode, node, caller).as_bytes());
        head
    }

    /// Appends arguments.
    pub(crate) fn arg<T: IntoBytes + Immutable>(&mut self, arg: &T) -> &mut Self {
        self.push(arg.as_bytes());
        self
    }

    /// Appends a name and its NUL.
    pub(crate) fn name(&mut self, name: Name<'_>) -> &mut Self {
        self.string(name.as_bytes())
    }

    /// Appends at most 255 bytes and a NUL.
    pub(crate) fn string(&mut self, string: &[u8]) -> &mut Self {
        self.push(string);
        self.push(&[0]);
        self
    }

    /// Appends the extension that an operation that creates files carries after its arguments.
    pub(crate) fn extension(&mut self, extension: Option<GroupExtension>) -> &mut Self {
        if let Some(extension) = extension {
            self.push(extension.as_bytes());
            self.header().total_extlen = EXTENSION_UNITS.into();
        }
        self
    }

    /// The arguments come from this crate and names are bounded, so a request fits the `N` chosen for it.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn header(&mut self) -> &mut InHeader {
        InHeader::mut_from_prefix(&mut self.bytes).expect("a head has room for its header").0
    }

    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// Extensions are counted in units of 8 bytes.
pub(crate) const EXTENSION_UNITS: u16 = (size_of::<GroupExtension>() / 8) as u16;

/// Returns a header; length and number are filled in when the request is sent.
pub(crate) fn header(opcode: Opcode, node: NodeId, caller: &Caller<'_>) -> InHeader {
    InHeader {
        len: 0.into(),
        opcode: (opcode as u32).into(),
        unique: 0.into(),
        nodeid: node.into(),
        uid: caller.uid.into(),
        gid: caller.gid.into(),
        pid: caller.pid.into(),
        total_extlen: 0.into(),
        padding: 0.into(),
    }
}

/// Fills in the fields that are known only when a request is sent; `head` begins with a header.
pub(super) fn complete_header(head: &mut [u8], data_len: usize, unique: Unique) {
    let len = head.len() + data_len;
    let header = InHeader::mut_from_prefix(head).expect("a request begins with its header").0;
    header.len = (len as u32).into();
    header.unique = unique.into();
}
