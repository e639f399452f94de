//! Hands a session over to another process of this host, together with its open files and its locks.
//!
//! Inodes travel by their paths as in a migration, since the other process has mounts of its own. What has no path
//! travels by its descriptor: a file that was removed or moved, and every open file, which keeps its flock locks. A
//! descriptor stays on the mount of this process; the host's kernel then refuses links and renames between the two.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::fs::{FileType, OFlags};
use transom_wire::{NodeId, ops::init::InitFlags};

use super::{
    paths::{Missing, Paths},
    save::{negotiated, next, root},
};
use crate::{
    Errno,
    migration::{self, Carried, Error, FileHandle, HandOver, Handle, Inode, Location, State, TAKEN_BACK_MAX},
    passthrough::{
        Passthrough,
        dir_stream::DirStream,
        handles::{FileRef, Open},
        inodes::Fd,
    },
    sysfd::RawFileHandle,
};

/// How long it may take to find the paths of all inodes. The guest is stopped meanwhile, and the supervisor gives up
/// after 30 s for all that it waits: this is less, so that the reason is known.
const PATHS_MAX: Duration = Duration::from_secs(20);

/// A descriptor that stays open here until it was sent.
enum Kept {
    File(FileRef),
    Directory(Arc<DirStream>),
    Inode(Fd),
    Lock(Arc<OwnedFd>),
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) => file.fd.as_fd(),
            Self::Directory(stream) => stream.as_fd(),
            Self::Inode(fd) => fd.as_fd(),
            Self::Lock(fd) => fd.as_fd(),
        }
    }
}

impl Passthrough {
    /// Returns the session for another process of this host.
    pub(in crate::passthrough) fn handed_over(&self) -> Result<HandOver, Error> {
        if let Some(obstacle) = self.hand_over_obstacle() {
            return Err(obstacle.into());
        }
        if self.locks.as_ref().is_some_and(|locks| locks.waiting() > 0) {
            return Err(Error::Refused("the guest waits for a lock: try again when it has the lock"));
        }
        let flags = InitFlags::from_bits_retain(self.session.load(Relaxed));
        let mut state = State {
            next_inode: next(self.inodes.unused_generation())?,
            next_handle: next(self.handles.unused_generation())?,
            negotiated: negotiated(flags),
            flags: Some(flags),
            ..State::default()
        };
        let mut kept = self.hand_over_inodes(&mut state)?;
        kept.extend(self.hand_over_open_files(&mut state));
        kept.extend(self.hand_over_locks(&mut state));
        let descriptors = kept.into_iter().map(|kept| Box::new(kept) as Box<dyn AsFd + Send>).collect();
        Ok(HandOver { state: migration::encode(&state), descriptors })
    }

    fn hand_over_inodes(&self, state: &mut State<'_>) -> Result<Vec<Kept>, Error> {
        let deadline = Instant::now() + PATHS_MAX;
        let paths = Paths::new(self);
        let known = self.inodes.all();
        let mut located = HashMap::with_capacity(known.len());
        let mut moved_directories = Vec::new();
        for &(nodeid, _) in &known {
            if Instant::now() > deadline {
                return Err(Error::Refused(
                    "the guest knows too many inodes to find their paths within 20 s: \
                     drop the guest's caches and try again",
                ));
            }
            match paths.of(nodeid) {
                Ok(path) => _ = located.insert(nodeid, path),
                // Through a descriptor on another mount, the guest could not rename anything in or out of it.
                Err(Missing::Elsewhere) if self.is_directory(nodeid) => moved_directories.push(nodeid),
                Err(Missing::Elsewhere | Missing::Gone(_)) => {}
            }
        }
        if !moved_directories.is_empty() {
            tracing::info!(count = moved_directories.len(), "searching the share for directories that were moved");
            let found = paths.search(&moved_directories, deadline).ok_or(Error::Refused(
                "the share is too large to be searched within 20 s for directories that the host has moved: \
                 drop the guest's caches and try again",
            ))?;
            located.extend(found);
        }
        state.inodes.push(root());
        let mut kept = Vec::new();
        for (nodeid, lookups) in known {
            let id = self.aliases.guests(nodeid).0;
            let (location, handle) = match located.remove(&nodeid) {
                Some(path) => (Location::Path(Cow::Owned(path)), self.known_handle(nodeid)),
                None => {
                    // Without a descriptor, it no longer exists, and the guest gets ESTALE as it would from us.
                    let Ok(inode) = self.inodes.get(nodeid) else { continue };
                    state.carried.push(Carried::Inode(id));
                    kept.push(Kept::Inode(inode.fd));
                    (Location::Lost, None)
                }
            };
            state.inodes.push(Inode { id, refcount: lookups, location, handle });
        }
        Ok(kept)
    }

    fn is_directory(&self, nodeid: NodeId) -> bool {
        self.inodes.get(nodeid).is_ok_and(|inode| inode.file_type == FileType::Directory)
    }

    /// Returns the handle by which an inode is recognised, if its file system has handles. Takes it if it was not
    /// needed so far.
    fn known_handle(&self, nodeid: NodeId) -> Option<FileHandle<'static>> {
        let handle = self.inodes.handle(nodeid)?;
        let raw = RawFileHandle::from(&handle);
        Some(FileHandle { mount: handle.mount().0, type_: raw.type_, bytes: Cow::Owned(raw.bytes.into()) })
    }

    /// Adds what is open. The data is not written to the disk: it stays in the host's memory.
    fn hand_over_open_files(&self, state: &mut State<'_>) -> Vec<Kept> {
        let nameless = state.carried.iter().filter_map(|carried| match carried {
            Carried::Inode(id) => Some(*id),
            Carried::OpenFile(_) | Carried::OpenDirectory(_) => None,
        });
        let nameless: HashSet<u64> = nameless.collect();
        let known: HashSet<u64> = state.inodes.iter().map(|inode| inode.id).collect();
        let mut kept = Vec::new();
        for (fh, open) in self.handles.all() {
            let (nodeid, flags) = match &open {
                Open::File(file) => (file.nodeid, OFlags::empty()),
                Open::Directory(stream) => (stream.nodeid, OFlags::DIRECTORY),
            };
            let inode = self.aliases.guests(nodeid).0;
            // A guest that has forgotten the inode does not use the file.
            if !known.contains(&inode) {
                continue;
            }
            state.handles.push(Handle { id: fh.0, inode, flags: flags.bits().cast_signed() });
            match open {
                Open::File(file) => {
                    state.carried.push(Carried::OpenFile(fh.0));
                    kept.push(Kept::File(file));
                }
                // Others are opened again, so that what is looked up in them is on the other process's mounts.
                Open::Directory(stream) if nameless.contains(&inode) => {
                    state.carried.push(Carried::OpenDirectory(fh.0));
                    kept.push(Kept::Directory(stream));
                }
                Open::Directory(_) => {}
            }
        }
        kept
    }

    fn hand_over_locks(&self, state: &mut State<'_>) -> Vec<Kept> {
        // After a migration that was cancelled, before the guest has gone on.
        if let Some(locks) = &self.locks {
            locks.take_back_all(Instant::now() + TAKEN_BACK_MAX);
        }
        let mut kept = Vec::new();
        for (_, holder, fd) in self.described_locks() {
            state.locks.push(holder);
            kept.push(Kept::Lock(fd));
        }
        kept
    }
}

/// The descriptors that came with a state, by what they are.
#[derive(Default)]
pub(super) struct Descriptors {
    pub(super) inodes: HashMap<u64, OwnedFd>,
    pub(super) open: HashMap<u64, OwnedFd>,
    /// In the order of [`State::locks`].
    pub(super) locks: Vec<OwnedFd>,
}

impl Descriptors {
    /// Sorts the descriptors that came with `state`.
    pub(super) fn of(state: &State<'_>, descriptors: Vec<OwnedFd>) -> Result<Self, Error> {
        let expected = state.carried.len() + state.locks.len();
        if descriptors.len() != expected {
            return Err(Error::Descriptors { found: descriptors.len(), expected });
        }
        let mut sorted = Self::default();
        let mut descriptors = descriptors.into_iter();
        for (carried, fd) in state.carried.iter().zip(&mut descriptors) {
            match *carried {
                Carried::Inode(id) => _ = sorted.inodes.insert(id, fd),
                Carried::OpenFile(id) | Carried::OpenDirectory(id) => _ = sorted.open.insert(id, fd),
            }
        }
        sorted.locks = descriptors.collect();
        Ok(sorted)
    }
}

impl Passthrough {
    /// Goes on with the locks in `state`, whose inodes and open files are known. `own` finds our number of an inode.
    pub(super) fn take_over_locks(
        &self,
        state: &State<'_>,
        descriptors: Vec<OwnedFd>,
        own: impl Fn(u64) -> Option<NodeId>,
    ) -> Result<(), Error> {
        if state.locks.is_empty() {
            return Ok(());
        }
        let Some(locks) = &self.locks else {
            return Err(Error::Refused(
                "the guest holds locks of the host, which this daemon's options do not allow: \
                 start it with --posix-lock",
            ));
        };
        for (holder, fd) in state.locks.iter().zip(descriptors) {
            let nodeid = own(holder.inode).ok_or(Error::Moved { inode: holder.inode, cause: Errno::STALE })?;
            let files: Vec<_> =
                holder.files.iter().filter_map(|&fh| self.handles.file(transom_wire::Handle(fh)).ok()).collect();
            locks
                .adopt(nodeid, holder, fd, files.iter().map(|file| &file.locking))
                .map_err(|cause| Error::Moved { inode: holder.inode, cause })?;
        }
        Ok(())
    }
}
