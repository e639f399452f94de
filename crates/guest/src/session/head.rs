//! The head of a request: header, arguments and names, built on the sender's stack.
//!
//! The operation's row says what may follow the header: each method exists only for operations that carry the part that
//! it appends.

use core::marker::PhantomData;

use transom_wire::{
    Name, NodeId, Opcode, Unique,
    extension::{EXT_GROUPS, ExtHeader},
    header::InHeader,
    operation::{
        Operation,
        parts::{ExtensionBytes, Ignored, ListOf, Names, OneName, TwoNames, XattrName},
    },
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U32};

use super::Caller;

/// The head of a request without names.
pub(crate) type Plain<O> = Head<O, 128>;
/// The head of a request with one name, and perhaps an extension.
pub(crate) type Named<O> = Head<O, { size_of::<InHeader>() + 16 + NAME_ROOM + size_of::<GroupExtension>() }>;
/// The head of a request with two names.
pub(crate) type TwiceNamed<O> = Head<O, { size_of::<InHeader>() + 16 + 2 * NAME_ROOM }>;
/// A name of 255 bytes and its NUL.
const NAME_ROOM: usize = 256;

/// Header, arguments and names of a request for the operation `O`, in at most `N` bytes.
pub(crate) struct Head<O, const N: usize> {
    bytes: [u8; N],
    len: usize,
    operation: PhantomData<O>,
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

impl<O: Operation, const N: usize> Head<O, N> {
    /// Begins a request for `node`.
    pub(crate) fn new(node: NodeId, caller: &Caller<'_>, args: &O::Args) -> Self {
        const {
            let names_len = <O::Names as Names>::COUNT * NAME_ROOM;
            assert!(size_of::<InHeader>() + size_of::<O::Args>() + names_len <= N, "the row needs a larger head");
        }
        Self::begin(node, caller, args.as_bytes())
    }

    /// Begins a request whose arguments are those of a session without SETXATTR_EXT.
    pub(crate) fn compat<A: IntoBytes + Immutable>(node: NodeId, caller: &Caller<'_>, args: &A) -> Self {
        const {
            let is_of_row = matches!(O::ROW.compat_len, Some(len) if len == size_of::<A>());
            assert!(is_of_row, "the row has no such arguments");
        }
        Self::begin(node, caller, args.as_bytes())
    }

    fn begin(node: NodeId, caller: &Caller<'_>, args: &[u8]) -> Self {
        let mut head = Self { bytes: [0; N], len: 0, operation: PhantomData };
        head.push(header(O::OPCODE, node, caller).as_bytes());
        head.push(args);
        head
    }

    /// Appends the name and its NUL.
    pub(crate) fn name(&mut self, name: Name<'_>) -> &mut Self
    where
        O: Operation<Names = OneName>,
    {
        self.string(name.as_bytes())
    }

    /// Appends two names, each with its NUL.
    pub(crate) fn names(&mut self, first: Name<'_>, second: Name<'_>) -> &mut Self
    where
        O: Operation<Names = TwoNames>,
    {
        self.string(first.as_bytes()).string(second.as_bytes())
    }

    /// Appends the name of an extended attribute, at most 255 bytes, and its NUL.
    pub(crate) fn xattr_name(&mut self, name: &[u8]) -> &mut Self
    where
        O: Operation<Names = XattrName>,
    {
        self.string(name)
    }

    /// Appends the string that Linux sends in the place of a name: the name of a root directory.
    pub(crate) fn placeholder(&mut self) -> &mut Self
    where
        O: Operation<Names = Ignored>,
    {
        self.string(b"/")
    }

    /// Appends the extension that an operation that creates files carries after its name.
    pub(crate) fn extension(&mut self, extension: Option<GroupExtension>) -> &mut Self
    where
        O: Operation<Rest = ExtensionBytes>,
    {
        if let Some(extension) = extension {
            self.push(extension.as_bytes());
            self.header().total_extlen = EXTENSION_UNITS.into();
        }
        self
    }

    /// Appends an item of the list that the request ends with.
    pub(crate) fn item<T: IntoBytes + Immutable>(&mut self, item: &T) -> &mut Self
    where
        O: Operation<Rest = ListOf<T>>,
    {
        self.push(item.as_bytes());
        self
    }

    fn string(&mut self, string: &[u8]) -> &mut Self {
        self.push(string);
        self.push(&[0]);
        self
    }

    /// Names are bounded and the senders bound their lists, so a request fits the `N` chosen for it.
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
