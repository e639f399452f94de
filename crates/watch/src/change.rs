//! What a consumer receives.

use std::num::NonZeroU32;

use crate::HandleRef;

/// One message of the kernel, or one part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A change.
    Change(Change<'a>),
    /// Changes were lost, since the kernel's queue was full: anything may have changed.
    Overflow,
}

/// A change of a name or an object.
///
/// The kernel merges changes of one object by one process that nobody has read yet, so two renames there and back may
/// be followed by nothing although the first was repeated. The parts of a merged message come in the order of
/// [`ChangeKind`]'s variants, which need not be the order in which they happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub kind: ChangeKind<'a>,
    /// Whether the object is a directory.
    pub is_dir: bool,
    /// The name under which it happened. `None` for a directory's own attributes, and for an object whose name is
    /// gone.
    pub place: Option<EntryName<'a>>,
    /// The object itself. `None` if only its name is known.
    pub object: Option<Object<'a>>,
    /// Who did it.
    pub author: Author,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryName<'a> {
    /// The directory.
    pub parent: Object<'a>,
    /// The name, without a NUL and never empty.
    pub name: &'a [u8],
}

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object<'a> {
    /// By its file handle, which stays the same for the life of the object and is never used again.
    Handle(HandleRef<'a>),
    /// By the number under which the consumer registered it.
    Held(u64),
}

/// What happened, in the order in which the parts of a merged message are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind<'a> {
    /// A name appeared: a new object, or another link to one.
    Created,
    /// A name appeared that was in a directory which is not watched.
    MovedIn,
    /// Contents or size changed.
    Modified,
    /// Mode, owner, times, extended attributes or the number of links changed.
    Attributes,
    /// A file that was open for writing was closed.
    ClosedWritten,
    /// A name moved, and replaced what was at the new place.
    Renamed {
        /// The new place.
        to: EntryName<'a>,
    },
    /// A name went to a directory that is not watched.
    MovedOut,
    /// A name disappeared.
    Deleted,
}

/// Who made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Author {
    /// This process.
    Own,
    /// Another process, and its id if it is visible in this process's pid namespace.
    Other(Option<NonZeroU32>),
    /// This process or another one.
    Unknown,
}
