//! The source of changes that suits this machine.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{io::Errno, path::Arg};

use crate::{
    Event, Journal, WatchError,
    fanotify::{self, Fanotify},
    inotify::Inotify,
};

/// Watches of inotify by default. Each takes about a kilobyte of the kernel's memory while its directory is in memory,
/// and the limit of a user on Linux is 8192 or more.
const WATCHES_MAX: usize = 8192;

/// What to observe.
#[derive(Debug, Clone)]
pub struct Options {
    /// The weakest source that will do: [`Strength::FileSystem`], [`Strength::Directories`] or [`Strength::Held`].
    pub weakest: Strength,
    /// Maximum number of objects that are observed by inotify.
    pub watches_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { weakest: Strength::Held, watches_max: WATCHES_MAX }
    }
}

/// What a source sees, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// No changes at all.
    Nothing,
    /// Changes in some of the directories that were passed to [`Watch::hold`], since there were too many.
    SomeHeld,
    /// Changes in directories that were passed to [`Watch::hold`]. The author is known if the [`Journal`] has no doubt.
    Held,
    /// Changes in directories that were passed to [`Directories::observe`], with names and objects, and whether it was
    /// our own.
    Directories,
    /// Each change in the file system, with names and objects, and whether it was our own.
    FileSystem,
}

/// A source of changes.
#[derive(Debug)]
pub struct Watch {
    source: Source,
    strength: Strength,
    journal: Arc<Journal>,
    fallback: Option<WatchError>,
}

#[derive(Debug)]
enum Source {
    Fanotify(Fanotify),
    Inotify(Inotify),
}

/// The directories that a source of [`Strength::Directories`] observes. It has no limit of its own: the kernel's is
/// `/proc/sys/fs/fanotify/max_user_marks`.
#[derive(Debug, Clone)]
pub struct Directories(Arc<OwnedFd>);

impl Directories {
    /// Observes names in the directory `dir`, which may be `O_PATH`, and the files and directories with these names.
    /// Returns once changes are reported. Does nothing if it is observed already.
    ///
    /// # Errors
    ///
    /// EACCES if this process may not read the directory, ENOSPC at the kernel's limit.
    pub fn observe(&self, dir: impl AsFd) -> Result<(), Errno> {
        fanotify::mark_directory(&self.0, dir)
    }

    /// Stops to observe the directory `dir`, which may be `O_PATH`.
    ///
    /// # Errors
    ///
    /// ENOENT if it is not observed.
    pub fn ignore(&self, dir: impl AsFd) -> Result<(), Errno> {
        fanotify::unmark_directory(&self.0, dir)
    }
}

impl Watch {
    /// Observes the file system of `root`, which may be `O_PATH`, or else what will be passed to
    /// [`Directories::observe`], or else what will be passed to [`Watch::hold`]. Changes from now on are reported.
    ///
    /// The privileges are needed only here: a process may drop them afterwards.
    ///
    /// # Errors
    ///
    /// Says what is missing: a privilege, a feature of the kernel, or one of the file system.
    pub fn open(root: impl AsFd, options: &Options) -> Result<Self, WatchError> {
        let journal = Arc::new(Journal::default());
        let new = |source, strength, fallback| Self { source, strength, journal: journal.clone(), fallback };
        let error = match Fanotify::open(root.as_fd()) {
            Ok(fanotify) => return Ok(new(Source::Fanotify(fanotify), Strength::FileSystem, None)),
            Err(error) => error,
        };
        if options.weakest <= Strength::Directories
            && let Ok(fanotify) = Fanotify::open_directories(root.as_fd())
        {
            return Ok(new(Source::Fanotify(fanotify), Strength::Directories, Some(error)));
        }
        if options.weakest <= Strength::Held {
            let inotify = Inotify::open(options.watches_max, journal.clone())?;
            return Ok(new(Source::Inotify(inotify), Strength::Held, Some(error)));
        }
        Err(error)
    }

    /// Observes only what will be passed to [`Directories::observe`], as if more was not granted.
    ///
    /// # Errors
    ///
    /// Says what is missing, for the file system of `root` too.
    pub fn open_directories(root: impl AsFd) -> Result<Self, WatchError> {
        let source = Source::Fanotify(Fanotify::open_directories(root.as_fd())?);
        Ok(Self { source, strength: Strength::Directories, journal: Arc::default(), fallback: None })
    }

    /// Observes only what will be passed to [`Watch::hold`], as if fanotify was not granted.
    ///
    /// # Errors
    ///
    /// [`WatchError::Limit`] if the user has too many queues.
    pub fn open_held(options: &Options) -> Result<Self, WatchError> {
        let journal = Arc::new(Journal::default());
        let source = Source::Inotify(Inotify::open(options.watches_max, journal.clone())?);
        Ok(Self { source, strength: Strength::Held, journal, fallback: None })
    }

    /// Returns a duplicate of the descriptor for another process, if this source has [`Strength::FileSystem`]. The two
    /// processes have one queue: what either reads, the other does not see.
    pub fn shared(&self) -> Option<io::Result<OwnedFd>> {
        match &self.source {
            Source::Fanotify(fanotify) if self.strength == Strength::FileSystem => {
                Some(fanotify.as_fd().try_clone_to_owned())
            }
            _ => None,
        }
    }

    /// Observes what another process does, which has passed what its [`Self::shared`] returned. Needs no privilege.
    pub fn from_shared(source: OwnedFd) -> Self {
        let source = Source::Fanotify(Fanotify::from_group(source));
        Self { source, strength: Strength::FileSystem, journal: Arc::default(), fallback: None }
    }

    /// Returns what this source sees.
    pub fn strength(&self) -> Strength {
        self.strength
    }

    /// Returns why this source is not [`Strength::FileSystem`].
    pub fn fallback(&self) -> Option<WatchError> {
        self.fallback
    }

    /// Returns what is observed, if this source has [`Strength::Directories`].
    pub fn directories(&self) -> Option<Directories> {
        match &self.source {
            Source::Fanotify(fanotify) if self.strength == Strength::Directories => Some(Directories(fanotify.group())),
            _ => None,
        }
    }

    /// Returns where this process has to announce its changes, if the source needs that.
    pub fn journal(&self) -> Option<Arc<Journal>> {
        matches!(self.source, Source::Inotify(_)).then(|| self.journal.clone())
    }

    /// Observes the object at `path` as [`Object::Held`](crate::Object::Held) `id`, if this source needs to be told.
    /// The path of an object with a descriptor is `/proc/self/fd/N`. A directory includes the files in it.
    ///
    /// # Errors
    ///
    /// The first time that there are too many: the limit to raise. From then on the strength is
    /// [`Strength::SomeHeld`]. An object that is gone or may not be read is no error.
    pub fn hold(&mut self, id: u64, path: impl Arg) -> Result<(), WatchError> {
        let Source::Inotify(inotify) = &mut self.source else { return Ok(()) };
        match inotify.hold(id, path) {
            Err(errno @ (Errno::NOSPC | Errno::NOMEM)) if self.strength > Strength::SomeHeld => {
                self.strength = Strength::SomeHeld;
                Err(WatchError::Watches(inotify.held(), errno))
            }
            _ => Ok(()),
        }
    }

    /// Stops observing an object.
    pub fn release(&mut self, id: u64) {
        if let Source::Inotify(inotify) = &mut self.source {
            inotify.release(id);
        }
    }

    /// Passes on what has happened. Returns whether there was anything, so call it until there is not. Does not block:
    /// poll the descriptor.
    ///
    /// # Errors
    ///
    /// After an error, changes may be missing.
    pub fn read(&mut self, mut each: impl FnMut(Event<'_>)) -> Result<bool, WatchError> {
        match &mut self.source {
            Source::Fanotify(fanotify) => fanotify.read(&mut each),
            Source::Inotify(inotify) => inotify.read(&mut each),
        }
    }
}

impl AsFd for Watch {
    /// Returns the descriptor that is readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Fanotify(fanotify) => fanotify.as_fd(),
            Source::Inotify(inotify) => inotify.as_fd(),
        }
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "no changes",
            Self::SomeHeld => "changes in some directories that are in use",
            Self::Held | Self::Directories => "changes in directories that are in use",
            Self::FileSystem => "all changes of the file system",
        })
    }
}
