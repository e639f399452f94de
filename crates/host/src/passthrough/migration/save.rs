//! Describes the session: what is known, what is open, what was negotiated.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    os::fd::AsFd,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, FileType, OFlags, fcntl_getfl, fdatasync};
use transom_wire::{NodeId, ops::init::InitFlags};

use super::{
    GENERATION_SHIFT,
    paths::{Missing, Paths},
};
use crate::{
    Errno,
    migration::{self, Error, FileHandle, Handle, Inode, Location, Mode, Negotiated, OnError, State, WaitingRequest},
    passthrough::{Passthrough, handles::Open},
    sysfd::{self, MountId, RawFileHandle, stat},
};

/// References to the root that a session holds, as virtiofsd counts them.
const ROOT_REFERENCES: u64 = 2;

/// The longest search for what was moved: the guest is stopped meanwhile.
const SEARCH_MAX: Duration = Duration::from_secs(60);

impl Passthrough {
    /// Returns the state of the session.
    pub(in crate::passthrough) fn saved(&self, waiting: Vec<WaitingRequest>) -> Result<Vec<u8>, Error> {
        if let Some(obstacle) = self.migration_obstacle() {
            return Err(obstacle.into());
        }
        self.check_locks(&waiting)?;
        let flags = InitFlags::from_bits_retain(self.session.load(Relaxed));
        let mut state = State {
            next_inode: next(self.inodes.unused_generation())?,
            next_handle: next(self.handles.unused_generation())?,
            negotiated: negotiated(flags),
            flags: Some(flags),
            ..State::default()
        };
        match self.config.migration.mode {
            Mode::FindPaths => self.add_paths(&mut state)?,
            Mode::FileHandles => self.add_handles(&mut state)?,
        }
        self.add_open_files(&mut state)?;
        self.add_locks(&mut state)?;
        state.waiting = waiting;
        Ok(migration::encode(&state))
    }

    /// Locks on the host end with this daemon, unless they are to travel.
    fn check_locks(&self, waiting: &[WaitingRequest]) -> Result<(), Error> {
        let Some(locks) = &self.locks else { return Ok(()) };
        let travels = self.config.migration.carries_locks;
        if !travels && (locks.descriptors() > 0 || locks.waiting() > 0 || !waiting.is_empty()) {
            return Err(Error::Refused(
                "the guest holds POSIX locks on the host or waits for one, and they travel only with \
                 --migration-locks=carry on both sides: release them, or share without --posix-lock",
            ));
        }
        let has_files = || self.handles.all().iter().any(|(_, open)| matches!(open, Open::File(_)));
        if self.has(InitFlags::FLOCK_LOCKS) && has_files() {
            return Err(Error::Refused(
                "the guest may hold flock locks on the host, which do not travel: \
                 close all files, or share without --flock",
            ));
        }
        Ok(())
    }

    fn add_paths(&self, state: &mut State<'_>) -> Result<(), Error> {
        let paths = Paths::new(self);
        let known = self.inodes.all();
        let mut missing = Vec::new();
        let mut located: HashMap<NodeId, Vec<u8>> = HashMap::with_capacity(known.len());
        let mut gone = HashMap::new();
        for &(nodeid, _) in &known {
            match paths.of(nodeid) {
                Ok(path) => _ = located.insert(nodeid, path),
                Err(Missing::Elsewhere) => missing.push(nodeid),
                Err(Missing::Gone(errno)) => _ = gone.insert(nodeid, errno),
            }
        }
        if !missing.is_empty() {
            tracing::info!(count = missing.len(), "searching the share for inodes that were moved");
            let found = paths.search(&missing, Instant::now() + SEARCH_MAX).ok_or(Error::Refused(
                "the share is too large to be searched for files that were moved or removed while the guest is \
                 stopped: drop the guest's caches and try again, or use --migration-mode=file-handles",
            ))?;
            located.extend(found);
            // They have names outside the share only.
            let elsewhere = missing.into_iter().filter(|nodeid| !located.contains_key(nodeid));
            gone.extend(elsewhere.map(|nodeid| (nodeid, Errno::NOENT)));
        }
        state.inodes.push(root());
        let open = self.open_inodes();
        for (nodeid, lookups) in known {
            let id = self.aliases.guests(nodeid).0;
            // It was removed or moved out of the share, and the guest is about to forget it: there is nothing that it
            // could still use.
            if gone.contains_key(&nodeid) && !open.contains(&nodeid) {
                tracing::debug!(inode = id, "an inode without a name is left behind");
                continue;
            }
            let location = match located.remove(&nodeid) {
                Some(path) => Location::Path(Cow::Owned(path)),
                None => {
                    let cause = gone.get(&nodeid).copied().unwrap_or(Errno::NOENT);
                    self.lost(Error::Lost { inode: id, cause })?;
                    Location::Lost
                }
            };
            let verify = self.config.migration.verify_handles && location != Location::Lost;
            let handle = if verify { self.handle_of(nodeid).ok() } else { None };
            state.inodes.push(Inode { id, refcount: lookups, location, handle });
        }
        Ok(())
    }

    /// Returns the inodes of which the guest has a file or directory open.
    fn open_inodes(&self) -> HashSet<NodeId> {
        let inode = |(_, open)| match open {
            Open::File(file) => file.nodeid,
            Open::Directory(stream) => stream.nodeid,
        };
        self.handles.all().into_iter().map(inode).collect()
    }

    fn add_handles(&self, state: &mut State<'_>) -> Result<(), Error> {
        let paths = Paths::new(self);
        let root_mount = stat::statx(&self.inodes.root().fd, AtFlags::empty(), stat::IDENTITY);
        let root_mount = root_mount.ok().and_then(|stat| stat::mount_id(&stat)).unwrap_or(MountId(0));
        state.inodes.push(root());
        state.mounts.push((root_mount.0, Cow::Borrowed(".")));
        for (nodeid, lookups) in self.inodes.all() {
            let id = self.aliases.guests(nodeid).0;
            let found = self.handle_of(nodeid).and_then(|handle| {
                if state.mounts.iter().any(|&(mount, _)| mount == handle.mount) {
                    return Ok(Some(handle));
                }
                // Any file or directory leads to its mount.
                let Some(path) = self.mount_path(&paths, nodeid)? else { return Ok(None) };
                state.mounts.push((handle.mount, Cow::Owned(path)));
                Ok(Some(handle))
            });
            let location = match found {
                Ok(Some(handle)) => Location::Handle(handle),
                Ok(None) | Err(_) => {
                    self.lost(Error::Lost { inode: id, cause: found.err().unwrap_or(Errno::NOENT) })?;
                    Location::Lost
                }
            };
            state.inodes.push(Inode { id, refcount: lookups, location, handle: None });
        }
        Ok(())
    }

    /// Returns a path to the mount of an inode, if the inode is of a type that may be opened.
    fn mount_path(&self, paths: &Paths<'_>, nodeid: NodeId) -> Result<Option<String>, Errno> {
        let is_openable = matches!(self.inodes.get(nodeid)?.file_type, FileType::RegularFile | FileType::Directory);
        let path = if is_openable { paths.of(nodeid).ok() } else { None };
        Ok(path.and_then(|path| String::from_utf8(path).ok()))
    }

    fn handle_of(&self, nodeid: NodeId) -> Result<FileHandle<'static>, Errno> {
        let handle = match self.inodes.handle(nodeid) {
            Some(handle) => handle,
            None => {
                let inode = self.inodes.get(nodeid)?;
                let stat = stat::statx(&inode.fd, AtFlags::empty(), stat::IDENTITY)?;
                sysfd::FileHandle::of(&inode.fd, stat::mount_id(&stat).unwrap_or(MountId(0)))?
            }
        };
        let raw = RawFileHandle::from(&handle);
        Ok(FileHandle { mount: handle.mount().0, type_: raw.type_, bytes: Cow::Owned(raw.bytes.into()) })
    }

    /// Adds what is open, after writing it to the disk: the destination may read it from there.
    fn add_open_files(&self, state: &mut State<'_>) -> Result<(), Error> {
        let known: HashSet<u64> = state.inodes.iter().map(|inode| inode.id).collect();
        for (fh, open) in self.handles.all() {
            let (nodeid, flags) = match &open {
                Open::File(file) => {
                    let flags = host_flags(&file.fd);
                    if flags & OFlags::RWMODE != OFlags::RDONLY {
                        fdatasync(&file.fd).map_err(|cause| Error::Unwritten { handle: fh.0, cause })?;
                    }
                    (file.nodeid, flags)
                }
                Open::Directory(stream) => (stream.nodeid, OFlags::RDONLY | OFlags::DIRECTORY),
            };
            let inode = self.aliases.guests(nodeid).0;
            // A guest that has forgotten the inode does not use the file.
            if known.contains(&inode) {
                state.handles.push(Handle { id: fh.0, inode, flags: flags.bits().cast_signed() });
            }
        }
        Ok(())
    }

    /// Fails with `error`, unless the guest is to see that something is lost.
    pub(super) fn lost(&self, error: Error) -> Result<(), Error> {
        match self.config.migration.on_error {
            OnError::Abort => Err(error),
            OnError::GuestError => {
                tracing::warn!(%error, "the guest will get errors");
                Ok(())
            }
        }
    }
}

pub(super) fn root() -> Inode<'static> {
    Inode { id: NodeId::ROOT.0, refcount: ROOT_REFERENCES, location: Location::Root, handle: None }
}

/// Returns the first number of a generation that was not used.
pub(super) fn next(generation: Option<u32>) -> Result<u64, Error> {
    let generation = generation.ok_or(Error::Refused("the share has used up its numbers: mount it again"))?;
    Ok(u64::from(generation) << GENERATION_SHIFT)
}

pub(super) fn negotiated(flags: InitFlags) -> Negotiated {
    Negotiated {
        writeback: flags.contains(InitFlags::WRITEBACK_CACHE),
        announce_submounts: flags.contains(InitFlags::SUBMOUNTS),
        posix_acl: flags.contains(InitFlags::POSIX_ACL),
        sup_group_extension: flags.contains(InitFlags::CREATE_SUPP_GROUP),
    }
}

/// Returns the flags with which the file can be opened again.
fn host_flags(fd: impl AsFd) -> OFlags {
    let kept = OFlags::RWMODE | OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT | OFlags::NOATIME;
    fcntl_getfl(fd).unwrap_or(OFlags::RDONLY) & kept
}
