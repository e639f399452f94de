//! Why an image cannot be used.

use std::{io, path::PathBuf};

use transom_size::short;

/// What to do about a full disk.
const ADVICE: &str = "free some, or name another directory with TRANSOM_CACHE";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no image, it is broken, or it is refused.
    #[error("{0}")]
    Invalid(String),
    /// The file system of the cache is too small.
    #[error(
        "unpacking needs at least {} more in the cache {dir:?}, where {} of {} are free for it; {ADVICE}",
        short(*.needed_bytes), short(.free_bytes.saturating_sub(*.reserve_bytes)), short(*.free_bytes)
    )]
    NoSpace {
        /// What is needed next.
        needed_bytes: u64,
        /// What is to stay free.
        reserve_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// Where.
        dir: PathBuf,
    },
    /// The file system of the cache has too few inodes.
    #[error(
        "unpacking needs at least {needed_files} more files in the cache {dir:?}, where {} of {free_files} are free \
         for it; {ADVICE}",
        .free_files.saturating_sub(*.reserve_files)
    )]
    NoFiles {
        /// What is needed next.
        needed_files: u64,
        /// What is to stay free.
        reserve_files: u64,
        /// What is free.
        free_files: u64,
        /// Where.
        dir: PathBuf,
    },
    /// The file system of the cache is full, or the user's quota.
    #[error("{doing}: {source}; the cache is {dir:?}: {ADVICE}")]
    Full {
        /// What failed, with its object.
        doing: String,
        /// Where.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The caller has stopped it.
    #[error("unpacking was stopped")]
    Cancelled,
    /// It has failed, and what was unpacked cannot be removed.
    #[error("{why}; {dir:?} is left and removed by the next run, because now it cannot be: {source}")]
    Left {
        /// Why it has failed.
        why: Box<Error>,
        /// What is left.
        dir: PathBuf,
        /// Why it cannot be removed.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What failed, with its object.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns a function for `map_err`; `doing` says what failed.
    pub(crate) fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source: source.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}
