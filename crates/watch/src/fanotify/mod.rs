//! Changes of a whole file system, or of single directories, by fanotify: with names, objects and pids.

mod record;
mod sys;

use std::{
    num::NonZeroU32,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::io::{Errno, read};

use crate::{Author, Change, Event, ObjectHandle, WatchError};
use record::Record;

/// Room for events in bytes. An event has at most two names of 255 bytes and three handles of 128.
const BUFFER_LEN: usize = 64 * 1024;

pub(crate) use sys::{mark_directory, unmark_directory};

/// A group with a mark on one file system, or with marks on directories.
#[derive(Debug)]
pub(crate) struct Fanotify {
    group: Arc<OwnedFd>,
    buffer: Box<[u8]>,
}

impl Fanotify {
    /// Marks the file system of `root`, which may be `O_PATH`.
    pub(crate) fn open(root: BorrowedFd<'_>) -> Result<Self, WatchError> {
        let new = Self::new()?;
        sys::mark_file_system(&new.group, root).map_err(|errno| match errno {
            Errno::PERM => WatchError::Privilege(errno),
            Errno::NOSPC | Errno::NOMEM => WatchError::Limit(errno),
            Errno::INVAL => WatchError::Kernel(errno),
            _ => WatchError::FileSystem(errno),
        })?;
        Ok(new)
    }

    /// Opens a group for directories of the file system of `root`, which has to be readable. Needs no privilege.
    pub(crate) fn open_directories(root: BorrowedFd<'_>) -> Result<Self, WatchError> {
        let new = Self::new()?;
        // Objects are recognised by the handles that events have; that they cannot be opened does not matter.
        ObjectHandle::of(root).map_err(WatchError::FileSystem)?;
        sys::mark_directory(&new.group, root).and_then(|()| sys::unmark_directory(&new.group, root)).map_err(
            |errno| match errno {
                Errno::NOSPC | Errno::NOMEM => WatchError::Limit(errno),
                Errno::INVAL => WatchError::Kernel(errno),
                Errno::ACCESS => WatchError::Privilege(errno),
                _ => WatchError::FileSystem(errno),
            },
        )?;
        Ok(new)
    }

    fn new() -> Result<Self, WatchError> {
        let group = sys::open().map_err(|errno| match errno {
            Errno::PERM => WatchError::Privilege(errno),
            Errno::MFILE | Errno::NFILE => WatchError::Limit(errno),
            _ => WatchError::Kernel(errno),
        })?;
        Ok(Self::from_group(group))
    }

    /// Reads from a group that [`Self::open`] has opened, in this process or another one.
    pub(crate) fn from_group(group: OwnedFd) -> Self {
        Self { group: Arc::new(group), buffer: vec![0; BUFFER_LEN].into() }
    }

    /// Returns the group, to mark directories.
    pub(crate) fn group(&self) -> Arc<OwnedFd> {
        self.group.clone()
    }

    /// Reads once. Returns whether there was anything. Does not block.
    pub(crate) fn read(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool, WatchError> {
        let len = match read(&*self.group, &mut *self.buffer) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(WatchError::Read(errno)),
        };
        let own = std::process::id();
        let mut rest = &self.buffer[..len];
        while !rest.is_empty() {
            let (record, others) = Record::parse(rest)?;
            rest = others;
            if record.is_overflow() {
                each(Event::Overflow);
                continue;
            }
            let author = match NonZeroU32::new(record.pid) {
                Some(pid) if pid.get() == own => Author::Own,
                // A process outside of our pid namespace has the number 0, and without privileges so has any other.
                pid => Author::Other(pid),
            };
            for kind in record.kinds() {
                each(Event::Change(Change {
                    kind,
                    is_dir: record.is_dir(),
                    place: record.place(),
                    object: record.object,
                    author,
                }));
            }
        }
        Ok(len > 0)
    }
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}
