//! Why a daemon cannot be a member of a group.

use std::{io, path::PathBuf};

use transom_versions::TableError;

use super::MEMBERS_MAX;
use crate::Errno;

/// Why a daemon cannot be a member of a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Neither a name nor a path.
    #[error(
        "{0:?} is not a coherence group: use a name of at most 64 letters, digits, '.', '_' and '-', or a directory \
         with a '/' in it"
    )]
    Name(String),
    /// The group's directory cannot be used.
    #[error("cannot use the coherence group's directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: Errno,
    },
    /// Others could replace the table, or read how active guests are.
    #[error(
        "the coherence group's {what} belongs to user {owner} with mode {mode:03o}; it must belong to user {user} and \
             nobody else may write it"
    )]
    NotPrivate {
        /// The directory or the file.
        what: String,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// The user of this process.
        user: u32,
    },
    /// Guests could write the table.
    #[error("the coherence group's directory {} is in the shared directory, where guests could write it", .0.display())]
    InShare(PathBuf),
    /// The file cannot be created or opened.
    #[error("cannot open the version table {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Errno,
    },
    /// Something else is where the table should be.
    #[error("{} is not a version table: it is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file's length does not fit its header.
    #[error("the version table has {len_bytes} bytes instead of {needed_bytes}: remove the file if no daemon uses it")]
    Length {
        /// The length in bytes.
        len_bytes: u64,
        /// The right length.
        needed_bytes: u64,
    },
    /// The file has no table, or one that is not known.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The area behind the table is another one.
    #[error(
        "the daemons' part of the version table has layout {found:#x}: another version of transomd uses the group, or \
         has used it; remove the file if no daemon does any more"
    )]
    Area {
        /// Its first word.
        found: u64,
    },
    /// The disk is full.
    #[error(
        "no space for {len_bytes} bytes of the coherence group's version table: free some where the group's directory \
         is, which is in memory if that is /run"
    )]
    Space {
        /// The length in bytes.
        len_bytes: u64,
        /// The cause.
        source: Errno,
    },
    /// The file cannot be mapped.
    #[error("cannot map the version table")]
    Map(#[source] Errno),
    /// The file cannot be opened again.
    #[error("cannot open the version table again")]
    Reopen(#[source] Errno),
    /// The shared directory has no identity.
    #[error("cannot read the identity of the shared directory")]
    Root(#[source] Errno),
    /// Records cannot be locked.
    #[error("cannot lock a record of the version table")]
    Lock(#[source] Errno),
    /// The daemons share different directories.
    #[error(
        "the coherence group shares the directory with device {} and inode {}, but --shared-dir has device {} and \
         inode {}: all daemons of a group must share the same directory", theirs.0, theirs.1, ours.0, ours.1
    )]
    OtherRoot {
        /// Device and inode of the group's directory.
        theirs: (u64, u64),
        /// Device and inode of ours.
        ours: (u64, u64),
    },
    /// No record is free.
    #[error("the coherence group has {MEMBERS_MAX} members, which is the limit")]
    Full,
    /// There are no random numbers for the keys.
    #[error("cannot read random numbers for the keys of the version table")]
    Random(#[source] Errno),
    /// The thread that watches the others cannot start.
    #[error("cannot start the thread that watches the other members of the coherence group")]
    Thread(#[source] io::Error),
}
