//! Why a state cannot be saved or loaded, for a person who migrates a guest.

use transom_wire::ops::init::InitFlags;

use crate::{Errno, survival::Obstacle};

/// Why the state of a share cannot be carried over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream ends too early.
    #[error("the state ends after {len_bytes} bytes, in the middle: the source was interrupted; migrate again")]
    Truncated {
        /// Its length.
        len_bytes: usize,
    },
    /// A version that is not known.
    #[error("the state has version {0}, and versions 1 and 2 are known: upgrade transomd on this side")]
    Version(u64),
    /// A record that is not known.
    #[error("the state has record {0}, which is not known: upgrade transomd on this side")]
    Record(u64),
    /// Something follows that is no record.
    #[error("{0} bytes follow the state, which are not known: upgrade transomd on this side")]
    Trailing(usize),
    /// Something that no source writes.
    #[error("the state has {0}: it was not written by virtiofsd or transomd")]
    Malformed(&'static str),
    /// More than is allowed.
    #[error("the state has {count} {what}, and the limit is {limit}: start the daemon with the limits of the source")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The number in the stream.
        count: u64,
        /// The limit here.
        limit: u64,
    },
    /// Features are in use that are not allowed here.
    #[error("the guest uses {0:?}, which this daemon's options do not allow: start it with the options of the source")]
    Features(InitFlags),
    /// Handles without permission for them.
    #[error("the source sent file handles: start this daemon with --migration-mode=file-handles too")]
    HandlesNotAllowed,
    /// An inode was not found.
    #[error(
        "inode {inode} cannot be carried over ({cause}): a file that was removed while open needs \
         --migration-mode=file-handles on both sides, and --migration-on-error=guest-error goes on without it"
    )]
    Lost {
        /// The guest's number of it.
        inode: u64,
        /// The cause.
        cause: Errno,
    },
    /// An open file could not be opened.
    #[error(
        "open file {handle} of inode {inode} cannot be opened here ({cause}): \
         --migration-on-error=guest-error goes on without it"
    )]
    OpenFile {
        /// The guest's number of it.
        handle: u64,
        /// The guest's number of its inode.
        inode: u64,
        /// The cause.
        cause: Errno,
    },
    /// An open file could not be written to the disk.
    #[error("the data of open file {handle} cannot be written to the disk: {cause}")]
    Unwritten {
        /// The guest's number of it.
        handle: u64,
        /// The cause.
        cause: Errno,
    },
    /// An inode was not found for a process of the same host.
    #[error("inode {inode} is not where it was ({cause}), or was replaced meanwhile: try again")]
    Moved {
        /// The guest's number of it.
        inode: u64,
        /// The cause.
        cause: Errno,
    },
    /// A lock that the guest holds at the source cannot be taken here.
    #[error(
        "the guest's lock on bytes {start} to {end} of inode {inode} cannot be taken here ({cause}): \
         if somebody else has it by now, migrate again when it is free; both sides need the same file system"
    )]
    Lock {
        /// The guest's number of the inode.
        inode: u64,
        /// The first byte.
        start: u64,
        /// The last byte.
        end: u64,
        /// The cause.
        cause: Errno,
    },
    /// A locked file was changed when nobody held its locks.
    #[error(
        "inode {inode} was changed by somebody else while its locks were on their way: migrate again; \
         both sides need the same file system"
    )]
    ChangedWhileUnlocked {
        /// The guest's number of it.
        inode: u64,
    },
    /// There are other descriptors than the state says.
    #[error("{found} descriptors came with a state that has {expected}")]
    Descriptors {
        /// The number that came.
        found: usize,
        /// The number in the state.
        expected: usize,
    },
    /// The share has something that does not go together with this.
    #[error("{0}")]
    Obstacle(Obstacle),
    /// The session has something that does not travel.
    #[error("{0}")]
    Refused(&'static str),
}

impl From<Obstacle> for Error {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}
