//! The source of changes that suits this machine.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
};

use crate::{Event, WatchError, fanotify::Fanotify};

/// What to observe.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {}

/// What a source sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// No changes at all.
    Nothing,
    /// Each change in the file system, with names, objects and whether it was our own.
    Names,
}

/// A source of changes.
#[derive(Debug)]
pub struct Watch {
    fanotify: Fanotify,
}

impl Watch {
    /// Observes the file system of `root`, which may be `O_PATH`. Changes from now on are reported.
    ///
    /// The privileges are needed only here: a process may drop them afterwards.
    ///
    /// # Errors
    ///
    /// Says what is missing: a privilege, a feature of the kernel, or one of the file system.
    pub fn open(root: impl AsFd, _options: Options) -> Result<Self, WatchError> {
        Ok(Self { fanotify: Fanotify::open(root.as_fd())? })
    }

    /// Returns what this source sees.
    pub fn strength(&self) -> Strength {
        Strength::Names
    }

    /// Passes on what has happened. Returns whether there was anything, so call it until there is not. Does not block:
    /// poll the descriptor.
    ///
    /// # Errors
    ///
    /// After an error, changes may be missing.
    pub fn read(&mut self, mut each: impl FnMut(Event<'_>)) -> Result<bool, WatchError> {
        self.fanotify.read(&mut each)
    }
}

impl AsFd for Watch {
    /// Returns the descriptor that is readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fanotify.as_fd()
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "no changes",
            Self::Names => "all changes, with names",
        })
    }
}
