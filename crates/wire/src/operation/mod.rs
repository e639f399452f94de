//! The operations of FUSE, each declared once.
//!
//! [`table`] has one row for each operation. It generates [`Opcode`], one type for each operation that implements
//! [`Operation`], and its [`Row`]. Host, guest, mount, fuzzers and tests use these; none of them has its own list of
//! operations. [`parts`] has the types of columns that are not structures, [`condition`] those for properties of some
//! requests only.

pub mod condition;
pub mod parts;
mod table;
#[cfg(test)]
mod table_test;

pub use condition::Condition;
pub use table::*;

use core::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use parts::{Names, ReplyBody, Rest};

/// An operation. The types that implement it are empty: they select an implementation at compile time.
pub trait Operation: Debug + Copy + Send + Sync + 'static {
    /// Its number.
    const OPCODE: Opcode;
    /// Its row of the table.
    const ROW: &'static Row;
    /// What follows a request's header, `()` for nothing.
    type Args: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Debug;
    /// The strings that follow the arguments.
    type Names: Names;
    /// What follows the strings.
    type Rest: Rest;
    /// What follows a reply's header.
    type Reply: ReplyBody;
}

/// The properties of an operation, without its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number.
    pub opcode: Opcode,
    /// The name in lower case, as it stands in metrics and logs.
    pub name: &'static str,
    /// Bytes of the arguments.
    pub args_len: usize,
    /// Bytes of the arguments in a session without SETXATTR_EXT, if they are fewer then; what is missing counts as 0.
    pub compat_len: Option<usize>,
    /// How many strings follow the arguments.
    pub names: usize,
    /// What follows the strings.
    pub rest: RestKind,
    /// Offset in the arguments of the number of bytes or items of `rest`.
    pub rest_size_at: Option<usize>,
    /// What follows the reply's header.
    pub reply: Shape,
    /// Offset in the arguments of the maximum length of the reply, in bytes.
    pub reply_size_at: Option<usize>,
    /// Offset in the reply of the inode that it names, and so counts a reference to.
    pub reply_nodeid_at: Option<usize>,
    /// Offset in the reply of the open file that it names.
    pub reply_handle_at: Option<usize>,
    /// Offset in the reply of a `fuse_attr`. STATX replies with a `fuse_statx` instead.
    pub reply_attr_at: Option<usize>,
    /// Offsets in the arguments of inodes, in addition to the header's nodeid.
    pub nodeids: &'static [usize],
    /// The arguments' fields that name open files.
    pub handles: &'static [HandleAt],
    /// Where the host runs it.
    pub runs: Runs,
    /// What it changes.
    pub changes: &'static [Change],
    /// Which requests may be sent again if nobody knows whether they were done.
    pub repeats: Condition,
    /// The effect on names, references, open files and locks.
    pub effect: Effect,
}

/// What follows the arguments and the strings of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestKind {
    /// Nothing.
    None,
    /// Extensions, up to the end of the message.
    Extensions,
    /// Bytes that are copied with the request.
    Bytes,
    /// File data, which stays in the driver's buffers.
    FileData,
    /// Structures of `item_len` bytes.
    List {
        /// In bytes.
        item_len: usize,
    },
}

/// What follows the header of a reply without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// There is no reply, not even an error.
    None,
    /// This number of bytes; 0 for a header alone.
    Fixed(usize),
    /// `head_len` bytes, then a variable number up to the size in the arguments.
    UpTo {
        /// In bytes.
        head_len: usize,
    },
    /// A variable number of bytes up to the size in the arguments. For a size of 0, `fixed_len` bytes with the length.
    UpToOr {
        /// In bytes.
        fixed_len: usize,
    },
    /// At most `len_max` bytes.
    Text {
        /// In bytes.
        len_max: usize,
    },
}

/// A field of the arguments that names an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleAt {
    /// Offset in the arguments, in bytes.
    pub at: usize,
    /// The requests that name one.
    pub when: Condition,
}

/// Where the host runs a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// On the queue's worker, even if it waits for the host's journal.
    Inline,
    /// On the queue's worker if it need not wait; otherwise in the bounded pool.
    TryThenPool,
    /// In the bounded pool: it always waits for the disk or the front end.
    Pool,
    /// On the queue's worker if it need not wait; otherwise on a thread of its own, since it may wait forever.
    TryThenThread,
}

/// Something that requests of an operation change when they succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// What is changed.
    pub what: Changed,
    /// Which requests change it.
    pub when: Condition,
}

/// What a request changes. Reads of files and directories change only access times, which do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Attributes of the inode in the header.
    Node,
    /// Data of the inode in the header.
    Data,
    /// Names in the directory in the header, and the directory's attributes.
    Names,
    /// Names in the directory in the arguments, and that directory's attributes.
    NewNames,
    /// Attributes of the inode that the first name leads to: its link count, or its change time.
    Named,
    /// Attributes of the inode that the second name led to, if there was one.
    Replaced,
    /// Attributes of the inode in the arguments.
    Argument,
    /// Data of the inode in the arguments.
    ArgumentData,
    /// Attributes of the inode in the reply, which may have existed before.
    Entry,
    /// Data of the inode in the reply, which may have existed before.
    EntryData,
}

/// The effect of an operation on names, references, open files and locks, for code that tracks these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Finds what a name leads to.
    LooksUp,
    /// Gives a name to a new inode, or a further name to an inode that exists.
    Makes(MadeType),
    /// Opens the inode in the header.
    Opens,
    /// Makes a regular file, or opens one that exists, under a name.
    MakesAndOpens,
    /// Makes a regular file without a name and opens it.
    OpensNameless,
    /// Looks up every entry that it lists.
    Lists,
    /// Removes a name.
    Removes,
    /// Moves a name, or exchanges two.
    Renames,
    /// Closes an open file.
    Closes,
    /// Ends the POSIX locks of an owner.
    Flushes,
    /// Sets or ends a lock.
    Locks,
    /// Drops references.
    Forgets,
    /// Ends another request.
    Interrupts,
}

/// The type of an inode that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeType {
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// What the mode at this offset of the arguments says.
    ByMode(usize),
    /// That of the inode named at this offset of the arguments.
    SameAs(usize),
}

impl Row {
    /// Returns whether requests are answered, if only with an error.
    pub const fn has_reply(&self) -> bool {
        !matches!(self.reply, Shape::None)
    }

    /// Returns whether replies name inodes or open files.
    pub const fn reply_names_any(&self) -> bool {
        self.reply_nodeid_at.is_some() || self.reply_handle_at.is_some() || matches!(self.effect, Effect::Lists)
    }

    /// Returns the bytes that must fit after a reply's header before the request has any effect.
    pub const fn reply_len_min(&self) -> usize {
        match self.reply {
            Shape::Fixed(len) | Shape::UpTo { head_len: len, .. } => len,
            Shape::None | Shape::UpToOr { .. } | Shape::Text { .. } => 0,
        }
    }

    /// Returns the most bytes that may follow a reply's header; `args` are the request's arguments.
    pub fn reply_len_max(&self, args: &[u8]) -> usize {
        let asked = self.reply_size_at.map_or(0, |at| condition::word(args, at) as usize);
        match self.reply {
            Shape::None => 0,
            Shape::Fixed(len) | Shape::Text { len_max: len } => len,
            Shape::UpTo { head_len } => asked.saturating_add(head_len),
            Shape::UpToOr { fixed_len } => asked.max(fixed_len),
        }
    }

    /// Returns the handles that a request with these arguments names, each by its offset in them.
    pub fn handles_in<'a>(&self, args: &'a [u8]) -> impl Iterator<Item = usize> + use<'a> {
        self.handles.iter().filter(|handle| handle.when.holds(args)).map(|handle| handle.at)
    }

    /// Returns what a request with these arguments changes if it succeeds.
    pub fn changes_of<'a>(&self, args: &'a [u8]) -> impl Iterator<Item = Changed> + use<'a> {
        self.changes.iter().filter(|change| change.when.holds(args)).map(|change| change.what)
    }
}
