//! A request that can be sent without waiting for its reply: any operation of the table, built on the heap.

use alloc::{sync::Arc, vec::Vec};
use core::{marker::PhantomData, ops::Range};

use transom_wire::{
    Name, NodeId,
    limits::SYMLINK_LEN_MAX,
    operation::{
        Operation,
        parts::{Bytes, FileData, Ignored, NameAndTarget, OneName, TwoNames, XattrName, XattrValue},
    },
};
use zerocopy::IntoBytes as _;

use super::{head::header, reply::WithBytes, request::Caller};
use crate::{Errno, dma::DmaBuffer};

/// Names of extended attributes have at most this many bytes.
const XATTR_NAME_LEN_MAX: usize = 255;

/// A request for `O`, to be started by [`Pending::start`](super::Pending::start).
///
/// Each method exists only for operations that carry the part that it appends. Parts are appended in the order of the
/// table: names, then data. Lengths in the arguments have to agree with them; otherwise the server returns EINVAL.
/// Memory that cannot be had is ENOMEM.
///
/// ```
/// use transom_guest::{Errno, session::{Caller, Request}};
/// use transom_wire::{Name, NodeId, operation::Lookup};
///
/// fn lookup(name: Name<'_>) -> Result<Request<Lookup>, Errno> {
///     Request::new(&Caller::default(), NodeId::ROOT, &())?.name(name)
/// }
/// ```
#[must_use = "a request is sent by `Pending::start`"]
pub struct Request<O> {
    pub(super) head: Vec<u8>,
    pub(super) data: Option<(Arc<DmaBuffer>, Range<usize>)>,
    pub(super) room: Option<(Arc<DmaBuffer>, Range<usize>)>,
    operation: PhantomData<fn() -> O>,
}

impl<O: Operation> Request<O> {
    /// Begins a request for `node`.
    pub fn new(caller: &Caller<'_>, node: NodeId, args: &O::Args) -> Result<Self, Errno> {
        let begun = Self { head: Vec::new(), data: None, room: None, operation: PhantomData };
        begun.push(header(O::OPCODE, node, caller).as_bytes())?.push(args.as_bytes())
    }

    /// Appends the name.
    pub fn name(self, name: Name<'_>) -> Result<Self, Errno>
    where
        O: Operation<Names = OneName>,
    {
        self.string(name.as_bytes())
    }

    /// Appends two names.
    pub fn names(self, first: Name<'_>, second: Name<'_>) -> Result<Self, Errno>
    where
        O: Operation<Names = TwoNames>,
    {
        self.string(first.as_bytes())?.string(second.as_bytes())
    }

    /// Appends the name of a symbolic link, and its target of 1 to 4095 bytes without a NUL.
    pub fn name_and_target(self, name: Name<'_>, target: &[u8]) -> Result<Self, Errno>
    where
        O: Operation<Names = NameAndTarget>,
    {
        match target.len() {
            0 => Err(Errno::NOENT),
            1..=SYMLINK_LEN_MAX => self.string(name.as_bytes())?.string(target),
            _ => Err(Errno::NAMETOOLONG),
        }
    }

    /// Appends the name of an extended attribute, of 1 to 255 bytes without a NUL.
    pub fn xattr_name(self, name: &[u8]) -> Result<Self, Errno>
    where
        O: Operation<Names = XattrName>,
    {
        match name.len() {
            1..=XATTR_NAME_LEN_MAX => self.string(name),
            _ => Err(Errno::RANGE),
        }
    }

    /// Appends the string without a meaning that TMPFILE carries.
    pub fn placeholder(self) -> Result<Self, Errno>
    where
        O: Operation<Names = Ignored>,
    {
        self.string(b"/")
    }

    /// Appends the value of an extended attribute.
    pub fn value(self, value: &[u8]) -> Result<Self, Errno>
    where
        O: Operation<Rest = XattrValue>,
    {
        self.push(value)
    }

    /// Appends bytes, which are copied.
    pub fn bytes(self, bytes: &[u8]) -> Result<Self, Errno>
    where
        O: Operation<Rest = Bytes>,
    {
        self.push(bytes)
    }

    /// Sends the bytes of `range` of `buffer`, in place. The device may read them until it has used the request, also
    /// after the [`Pending`](super::Pending) was dropped.
    ///
    /// Errors: EINVAL for a range outside the buffer. A buffer of another device is refused with EINVAL by
    /// [`Pending::start`](super::Pending::start).
    pub fn data(self, buffer: Arc<DmaBuffer>, range: Range<usize>) -> Result<Self, Errno>
    where
        O: Operation<Rest = FileData>,
    {
        Ok(Self { data: Some(within(buffer, range)?), ..self })
    }

    /// Has the bytes of the reply written to `range` of `buffer`. The device may write them until it has used the
    /// request, also after the [`Pending`](super::Pending) was dropped.
    ///
    /// Where devices do not see the processor's caches, the range shares no cache line with other data: see
    /// [`DmaOps::sync_for_cpu`](crate::dma::DmaOps::sync_for_cpu). Errors: those of [`Self::data`].
    pub fn room(self, buffer: Arc<DmaBuffer>, range: Range<usize>) -> Result<Self, Errno>
    where
        O: Operation<Reply: WithBytes>,
    {
        Ok(Self { room: Some(within(buffer, range)?), ..self })
    }

    fn string(self, bytes: &[u8]) -> Result<Self, Errno> {
        if bytes.contains(&0) {
            return Err(Errno::INVAL);
        }
        self.push(bytes)?.push(&[0])
    }

    fn push(mut self, bytes: &[u8]) -> Result<Self, Errno> {
        self.head.try_reserve(bytes.len()).map_err(|_| Errno::NOMEM)?;
        self.head.extend_from_slice(bytes);
        Ok(self)
    }
}

fn within(buffer: Arc<DmaBuffer>, range: Range<usize>) -> Result<(Arc<DmaBuffer>, Range<usize>), Errno> {
    if range.start <= range.end && range.end <= buffer.len() { Ok((buffer, range)) } else { Err(Errno::INVAL) }
}
