//! Why an image cannot be used.

use std::{io, path::PathBuf};

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
        "unpacking needs at least {needed_bytes} bytes in {dir:?}, and {free_bytes} are free; free some, or name \
         another directory with TRANSOM_CACHE"
    )]
    NoSpace {
        /// What was needed next, with what is to stay free.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// Where.
        dir: PathBuf,
    },
    /// The caller has stopped it.
    #[error("unpacking was stopped")]
    Cancelled,
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
