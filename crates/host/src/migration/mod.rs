//! The state of a session as bytes, so that another daemon can go on with it: what travels in a live migration and in
//! a snapshot of the guest.
//!
//! The format is that of virtiofsd 1.13.7 to 1.14, so that a guest can move from virtiofsd and back: postcard 1.x
//! ([`postcard`]) of an enumeration of two versions. [`decode()`] reads both, [`encode()`] writes the second. There
//! virtiofsd stops reading, and records of our own follow with what it has no place for ([`records`]). [`State`] is the
//! content, [`HandOver`] a state for another process of this host, and [`Error`] says why a state is refused. What a
//! file system does with it is not here.

mod decode;
mod encode;
mod error;
mod hand_over;
mod locked;
mod postcard;
mod records;

#[cfg(test)]
mod migration_test;

use std::borrow::Cow;

use transom_wire::ops::init::InitFlags;

/// How long a destination that has failed may take to let its locks go. The guest waits for that.
pub const TAKEN_BACK_MAX: std::time::Duration = std::time::Duration::from_secs(2);

pub use decode::{Limits, decode};
pub use encode::encode;
pub use error::Error;
pub use hand_over::{Carried, HandOver, LockHolder, LockedRange};
pub use locked::{LockedFile, WaitingRequest};

/// The longest path, in bytes: Linux opens none that is longer.
pub const PATH_LEN_MAX: usize = 4096;

/// How the source describes inodes, and whether the destination accepts file handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By paths below the shared directory.
    #[default]
    FindPaths,
    /// By file handles, which also find files that have no name any more. Both sides need the same file system and
    /// CAP_DAC_READ_SEARCH.
    FileHandles,
}

/// What to do with an inode or an open file that cannot be carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The migration fails, and the guest goes on at the source.
    #[default]
    Abort,
    /// The guest gets an error when it uses it.
    GuestError,
}

/// How a file system is carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// How inodes are described.
    pub mode: Mode,
    /// What to do with those that are lost.
    pub on_error: OnError,
    /// Sends the handle of each inode along with its path, so that the destination can tell a file that was replaced.
    pub verify_handles: bool,
    /// Lets POSIX locks of the host travel, and requests that wait for one. For a moment nobody holds them.
    pub carries_locks: bool,
}

/// The state of a session. Borrows from the bytes that it was decoded from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State<'a> {
    /// The inodes that the guest knows. Empty without a session; else the root is among them.
    pub inodes: Vec<Inode<'a>>,
    /// Greater than any number of an inode that the guest was ever given.
    pub next_inode: u64,
    /// The files and directories that the guest has open.
    pub handles: Vec<Handle>,
    /// Greater than any number of an open file that the guest was ever given.
    pub next_handle: u64,
    /// What was negotiated.
    pub negotiated: Negotiated,
    /// A path below the shared directory for each mount that a [`Location::Handle`] refers to.
    pub mounts: Vec<(u64, Cow<'a, str>)>,
    /// All that was negotiated; only from a daemon that writes our records.
    pub flags: Option<InitFlags>,
    /// What the descriptors are that come with the state; none in a migration.
    pub carried: Vec<Carried>,
    /// The holders of POSIX locks. To another process of this host, each comes with another descriptor after those of
    /// `carried`.
    pub locks: Vec<LockHolder>,
    /// What the locked files were like when the source let go of the locks; none on the same host.
    pub locked_files: Vec<LockedFile>,
    /// The requests that wait for a lock; none on the same host.
    pub waiting: Vec<WaitingRequest>,
}

/// A session that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The flags of the session.
    pub flags: InitFlags,
    /// The requests that are to be served again, because the source has not answered them.
    pub waiting: Vec<WaitingRequest>,
}

/// What virtiofsd carries over of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Negotiated {
    /// The guest writes its cached pages back later.
    pub writeback: bool,
    /// The guest mounts submounts on its own.
    pub announce_submounts: bool,
    /// POSIX access control lists. The guest then leaves the umask to the daemon, and SETXATTR has its longer
    /// arguments.
    pub posix_acl: bool,
    /// The guest sends a supplementary group with new files.
    pub sup_group_extension: bool,
}

/// An inode that the guest knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode<'a> {
    /// The guest's number of it.
    pub id: u64,
    /// How many lookups the guest has not forgotten, and of [`Location::Child`] how many inodes refer to it.
    pub refcount: u64,
    /// Where it is.
    pub location: Location<'a>,
    /// Its handle, for comparison.
    pub handle: Option<FileHandle<'a>>,
}

/// Where an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location<'a> {
    /// The shared directory.
    Root,
    /// A name in the directory `parent`, whose references include one for this.
    Child {
        /// The directory.
        parent: u64,
        /// The name.
        name: Cow<'a, [u8]>,
    },
    /// The source could not tell.
    Lost,
    /// A path below the shared directory.
    Path(Cow<'a, [u8]>),
    /// By its handle.
    Handle(FileHandle<'a>),
}

/// A file handle of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHandle<'a> {
    /// A key of [`State::mounts`].
    pub mount: u64,
    /// `handle_type` of `struct file_handle`.
    pub type_: i32,
    /// `f_handle`.
    pub bytes: Cow<'a, [u8]>,
}

/// A file or directory that the guest has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// The guest's number of it.
    pub id: u64,
    /// Its inode.
    pub inode: u64,
    /// Flags for open(2).
    pub flags: i32,
}
