//! Why something cannot be done with an overlay.

use std::{io, path::PathBuf};

use crate::Conflict;

/// An error, or the reason of a refusal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody uses the overlay.
    #[error("the overlay of {} is in use by a run or another command; wait until that has ended", .0.display())]
    InUse(PathBuf),
    /// There is another directory at the path.
    #[error(
        "{} is not the directory in which the guest made its changes, but a later one: `transom discard` throws the \
         changes away, `transom commit --force` writes them into this one",
        .0.display()
    )]
    Replaced(PathBuf),
    /// The directory is gone.
    #[error(
        "{} is gone: `transom discard` throws the guest's changes away; to keep them, make the directory anew and \
         `transom commit --force` them",
        .0.display()
    )]
    Missing(PathBuf),
    /// The directory's files have changed since the guest saw them.
    #[error("{} changed on the host and in the guest", amount(.0.len()))]
    Conflicts(Vec<Conflict>),
    /// A commit would make devices.
    #[error("{path:?} is a device, and a commit makes none; remove it with `transom discard`")]
    Device {
        /// The path in the directory.
        path: PathBuf,
    },
    /// A commit would touch what the guest did not see.
    #[error(
        "{path:?} was hidden from the guest, whose changes would replace or remove it: commit other paths by name, or \
         remove the change with `transom discard`"
    )]
    Hidden {
        /// The path in the directory.
        path: PathBuf,
    },
    /// The guest has done something to the layer itself.
    #[error(
        "the guest has destroyed the overlay of {}, which cannot be read any more: `transom discard` removes it; the \
         directory is as it was",
        .0.display()
    )]
    Layers(PathBuf),
    /// There is no change at a path.
    #[error("the guest has changed nothing at {0:?}")]
    Unchanged(PathBuf),
    /// A path can only be treated together with a directory above it.
    #[error("the guest has replaced {above:?} as a whole, so {path:?} goes with it: name {above:?}")]
    Whole {
        /// The path that was named.
        path: PathBuf,
        /// The directory above.
        above: PathBuf,
    },
    /// A path leads out of the directory.
    #[error("{0:?} is not in the directory")]
    Outside(PathBuf),
    /// The directory has changed while a commit was at work.
    #[error("{0:?} has just been changed on the host; the commit is not complete: try again")]
    Meanwhile(PathBuf),
    /// A file system is mounted in the directory, and the guest would mount the overlay.
    #[error(
        "a file system is mounted at {}, and an overlay has none: unmount it, hide it, or share a directory without it",
        .0.display()
    )]
    MountedBelow(PathBuf),
    /// The overlay cannot be where it has to be.
    #[error("{0}")]
    Place(String),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What failed, with its object.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether a system call failed in this way.
    pub(crate) fn is_of(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == kind)
    }

    /// Returns a function for `map_err` that makes an error of this crate from a system error; `doing` says what
    /// failed.
    pub(crate) fn io<E: Into<io::Error>>(doing: impl FnOnce() -> String) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing: doing(), source: source.into() }
    }
}

fn amount(count: usize) -> String {
    if count == 1 { "one path".into() } else { format!("{count} paths") }
}
