//! Goes on with a session of another daemon. What that daemon says is checked like a guest's request: paths do not
//! leave the shared directory, and handles are opened only if the configuration allows it. [`find`](super::find) has
//! how each inode is found.

use std::{
    collections::{HashMap, HashSet},
    os::fd::OwnedFd,
    sync::atomic::Ordering::Relaxed,
};

use rustix::fs::{AtFlags, FileType, Mode as FileMode, OFlags};
use transom_wire::{Handle, NodeId, ops::init::InitFlags};

use super::{GENERATION_SHIFT, find::split, hand_over::Descriptors};
use crate::{
    Errno,
    migration::{self, Error, Inode, Limits, Loaded, Location, Mode, State},
    passthrough::Passthrough,
    sysfd::{path, stat},
};

/// Refers to an inode of any type without opening it.
pub(super) const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The features that virtiofsd reports; those without a record of ours follow from the configuration.
const REPORTED: [InitFlags; 4] = [
    InitFlags::WRITEBACK_CACHE,
    InitFlags::SUBMOUNTS,
    InitFlags::POSIX_ACL.union(InitFlags::DONT_MASK).union(InitFlags::SETXATTR_EXT),
    InitFlags::CREATE_SUPP_GROUP,
];

impl Passthrough {
    /// Goes on with the session in `bytes`, or returns `None` if there is no session in it.
    pub(in crate::passthrough) fn loaded(&self, bytes: &[u8]) -> Result<Option<Loaded>, Error> {
        if let Some(obstacle) = self.migration_obstacle() {
            return Err(obstacle.into());
        }
        let mut state = migration::decode(bytes, self.limits())?;
        let flags = self.go_on(&state, None)?;
        Ok(flags.map(|flags| Loaded { flags, waiting: std::mem::take(&mut state.waiting) }))
    }

    /// Goes on with a session of another process of this host; returns its flags, or `None` without a session.
    pub(in crate::passthrough) fn taken_over(
        &self,
        bytes: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<InitFlags>, Error> {
        if let Some(obstacle) = self.hand_over_obstacle() {
            return Err(obstacle.into());
        }
        let state = migration::decode(bytes, self.limits())?;
        let descriptors = Descriptors::of(&state, descriptors)?;
        self.go_on(&state, Some(descriptors))
    }

    fn limits(&self) -> Limits {
        Limits { inodes: self.inodes.capacity().limit(), handles: self.handles.descriptors().limit() / 8 * 5 }
    }

    /// Goes on with the session in `state`. `descriptors` came with it from another process of this host.
    fn go_on(&self, state: &State<'_>, descriptors: Option<Descriptors>) -> Result<Option<InitFlags>, Error> {
        if descriptors.is_none() && !state.carried.is_empty() {
            return Err(Error::Malformed("descriptors, which do not travel to another host"));
        }
        let has_locks = !(state.locks.is_empty() && state.waiting.is_empty());
        if descriptors.is_none() && has_locks && !self.config.migration.carries_locks {
            return Err(Error::Refused("the source sent locks: start this daemon with --migration-locks=carry too"));
        }
        if state.inodes.is_empty() {
            return Ok(None);
        }
        let flags = self.flags_of(state)?;
        let generations = (generation_from(state.next_inode)?, generation_from(state.next_handle)?);
        let mut loader = Loader::new(self, state, descriptors)?;
        self.session.store(flags.bits(), Relaxed);
        self.inodes.begin_at(generations.0);
        self.handles.begin_at(generations.1);
        loader.add_inodes()?;
        loader.add_open_files()?;
        loader.add_locks()?;
        tracing::info!(inodes = state.inodes.len(), open = state.handles.len(), "took a session over");
        Ok(Some(flags))
    }

    /// Returns the flags of the session. Errors: this share does not have all of them.
    fn flags_of(&self, state: &State<'_>) -> Result<InitFlags, Error> {
        let wanted = self.wanted();
        let flags = state.flags.unwrap_or_else(|| {
            let negotiated = &state.negotiated;
            let reported = [
                negotiated.writeback,
                negotiated.announce_submounts,
                negotiated.posix_acl,
                negotiated.sup_group_extension,
            ];
            // Nobody reports a private extension.
            let others = wanted - InitFlags::OWN_CHANGES;
            REPORTED.into_iter().zip(reported).fold(others, |flags, (feature, is_used)| match is_used {
                true => flags | feature,
                false => flags - feature,
            })
        });
        // A guest goes on without trailers.
        let flags = flags - (InitFlags::OWN_CHANGES - wanted);
        if wanted.contains(flags) { Ok(flags) } else { Err(Error::Features(flags - wanted)) }
    }
}

/// The greatest generation at which a session may go on. A slot whose generations are used up is not used again.
const GENERATION_MAX: u64 = u32::MAX as u64 / 2;
/// The most references of one inode: counting more must not overflow.
const REFERENCES_MAX: u64 = u64::MAX / 2;

/// Returns a generation whose numbers are all `next` or greater.
pub(super) fn generation_from(next: u64) -> Result<u32, Error> {
    match next.div_ceil(1 << GENERATION_SHIFT) {
        generation @ 0..=GENERATION_MAX => Ok((generation as u32).max(1)),
        _ => Err(Error::Malformed("numbers that leave too few for new inodes and files")),
    }
}

/// Whether an inode has been dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// Waits for its parent.
    Begun,
    Done,
}

pub(super) struct Loader<'a> {
    pub(super) fs: &'a Passthrough,
    state: &'a State<'a>,
    /// The places of inodes in the state, by number.
    places: HashMap<u64, usize>,
    /// The same, by path.
    by_path: HashMap<&'a [u8], usize>,
    stages: Vec<Stage>,
    /// Our numbers; `None` for inodes that are lost.
    own: Vec<Option<NodeId>>,
    /// The inodes of which the guest has something open.
    open: HashSet<u64>,
    /// A descriptor on each mount through which handles are opened.
    pub(super) mounts: HashMap<u64, OwnedFd>,
    /// The session comes from another process of this host: nothing of it may be lost.
    is_handed_over: bool,
    descriptors: Descriptors,
}

impl<'a> Loader<'a> {
    fn new(fs: &'a Passthrough, state: &'a State<'a>, descriptors: Option<Descriptors>) -> Result<Self, Error> {
        let has_handles = state.inodes.iter().any(|inode| matches!(inode.location, Location::Handle(_)));
        let mut mounts = HashMap::new();
        if has_handles {
            if fs.config.migration.mode != Mode::FileHandles {
                return Err(Error::HandlesNotAllowed);
            }
            let limit = fs.handles.descriptors().limit() / 8;
            if state.mounts.len() > limit {
                let count = state.mounts.len() as u64;
                return Err(Error::TooMany { what: "mounts", count, limit: limit as u64 });
            }
            for (mount, path) in &state.mounts {
                match fs.open_mount(path) {
                    Ok(fd) => _ = mounts.insert(*mount, fd),
                    Err(error) => tracing::warn!(%error, ?path, "inodes on a mount of the source are lost"),
                }
            }
        }
        let places = state.inodes.iter().enumerate().map(|(place, inode)| (inode.id, place)).collect();
        let by_path = state.inodes.iter().enumerate().filter_map(|(place, inode)| match &inode.location {
            Location::Path(path) => Some((&**path, place)),
            _ => None,
        });
        let by_path = by_path.collect();
        let open = state.handles.iter().map(|handle| handle.inode).collect();
        let count = state.inodes.len();
        Ok(Self {
            fs,
            state,
            places,
            by_path,
            stages: vec![Stage::Waiting; count],
            own: vec![None; count],
            open,
            mounts,
            is_handed_over: descriptors.is_some(),
            descriptors: descriptors.unwrap_or_default(),
        })
    }

    fn add_inodes(&mut self) -> Result<(), Error> {
        let mut stack = Vec::new();
        for first in 0..self.state.inodes.len() {
            stack.push(first);
            while let Some(&place) = stack.last() {
                match (self.stages[place], self.parent(place)?) {
                    (Stage::Done, _) => _ = stack.pop(),
                    (_, Some(parent)) if self.stages[parent] != Stage::Done => {
                        if self.stages[parent] == Stage::Begun || parent == place {
                            return Err(Error::Malformed("an inode below itself"));
                        }
                        self.stages[place] = Stage::Begun;
                        stack.push(parent);
                    }
                    _ => {
                        self.own[place] = self.add_inode(place)?;
                        self.stages[place] = Stage::Done;
                        stack.pop();
                    }
                }
            }
        }
        self.drop_references();
        self.check_handles()
    }

    /// Fails if no handle leads to an inode, as on another file system.
    fn check_handles(&self) -> Result<(), Error> {
        let mut by_handle = self.state.inodes.iter().zip(&self.own).filter(|(inode, _)| is_by_handle(inode));
        match by_handle.clone().next() {
            Some((first, _)) if by_handle.all(|(_, own)| own.is_none()) => {
                self.lost(Error::Lost { inode: first.id, cause: Errno::STALE })
            }
            _ => Ok(()),
        }
    }

    /// Returns the place of the directory in which an inode is to be found.
    fn parent(&self, place: usize) -> Result<Option<usize>, Error> {
        match &self.state.inodes[place].location {
            Location::Child { parent, .. } => match self.places.get(parent) {
                Some(&parent) => Ok(Some(parent)),
                None => Err(Error::Malformed("an inode in an unknown directory")),
            },
            Location::Path(path) => Ok(split(path).and_then(|(above, _)| self.by_path.get(above).copied())),
            _ => Ok(None),
        }
    }

    /// Makes an inode known, with all its references.
    fn add_inode(&mut self, place: usize) -> Result<Option<NodeId>, Error> {
        let state = self.state;
        let inode = &state.inodes[place];
        let carried = self.descriptors.inodes.remove(&inode.id);
        let added = match &inode.location {
            Location::Root => return Ok(Some(NodeId::ROOT)),
            Location::Lost if let Some(fd) = carried => self.find_by_descriptor(fd),
            // The guest has removed it, most likely; otherwise it looks the name up again.
            Location::Lost if !self.open.contains(&inode.id) => return Ok(None),
            Location::Lost => Err(Errno::STALE),
            Location::Child { name, .. } => {
                let parent = self.parent(place)?.and_then(|parent| self.own[parent]);
                parent.ok_or(Errno::STALE).and_then(|parent| self.find(parent, name, inode))
            }
            // Below the directory if the guest knows it, so that the inode is found again after a rename above it.
            Location::Path(path) => match self.parent(place)?.and_then(|above| self.own[above]).zip(split(path)) {
                Some((directory, (_, name))) => self.find(directory, name, inode),
                None => self.find(NodeId::ROOT, path, inode),
            },
            Location::Handle(handle) => self.find_by_handle(handle),
        };
        match added {
            Ok(nodeid) => {
                self.fs.inodes.add_lookups(nodeid, inode.refcount.min(REFERENCES_MAX));
                if nodeid != NodeId::ROOT && nodeid.0 != inode.id {
                    self.fs.aliases.insert(NodeId(inode.id), nodeid);
                }
                Ok(Some(nodeid))
            }
            Err(Errno::NFILE) => {
                let limit = self.fs.inodes.capacity().limit() as u64;
                Err(Error::TooMany { what: "inodes", count: self.state.inodes.len() as u64, limit })
            }
            // As above, if the source had it by its handle only: see `check_handles`.
            Err(Errno::STALE) if is_by_handle(inode) && !self.open.contains(&inode.id) => Ok(None),
            Err(cause) => self.lost(Error::Lost { inode: inode.id, cause }).map(|()| None),
        }
    }

    /// Fails with `error`, unless the guest is to see that something is lost.
    fn lost(&self, error: Error) -> Result<(), Error> {
        match error {
            Error::Lost { inode, cause } | Error::OpenFile { inode, cause, .. } if self.is_handed_over => {
                Err(Error::Moved { inode, cause })
            }
            error => self.fs.lost(error),
        }
    }

    /// Drops the references that inodes have held to the directories in which they were found, and those with which
    /// [`Loader::find`] has kept each until now.
    fn drop_references(&self) {
        for (inode, own) in self.state.inodes.iter().zip(&self.own) {
            if let Location::Child { parent, .. } = &inode.location
                && let Some(nodeid) = self.places.get(parent).and_then(|&place| self.own[place])
            {
                self.fs.forget(nodeid, 1);
            }
            if let Some(nodeid) = *own {
                self.fs.forget(nodeid, 1);
            }
        }
    }

    fn add_open_files(&mut self) -> Result<(), Error> {
        for handle in &self.state.handles {
            let own = self.places.get(&handle.inode).and_then(|&place| self.own[place]);
            let flags = OFlags::from_bits_retain(handle.flags.cast_unsigned());
            let opened = own.ok_or(Errno::STALE).and_then(|nodeid| self.open(Handle(handle.id), nodeid, flags));
            if let Err(cause) = opened {
                self.lost(Error::OpenFile { handle: handle.id, inode: handle.inode, cause })?;
            }
        }
        Ok(())
    }

    fn add_locks(&mut self) -> Result<(), Error> {
        let descriptors = std::mem::take(&mut self.descriptors.locks);
        let own = |id: u64| self.places.get(&id).and_then(|&place| self.own[place]);
        match self.is_handed_over {
            true => self.fs.take_over_locks(self.state, descriptors, own),
            false => self.fs.take_locks(self.state, own),
        }
    }

    fn open(&mut self, fh: Handle, nodeid: NodeId, flags: OFlags) -> Result<(), Errno> {
        let fs = self.fs;
        let slot = fs.handles.reserve()?;
        let carried = self.descriptors.open.remove(&fh.0);
        if fs.inodes.get(nodeid)?.file_type == FileType::Directory {
            let stream = match carried {
                Some(fd) => fs.directory_of(nodeid, fd)?.used_before(),
                None => fs.open_directory(nodeid)?,
            };
            fs.handles.adopt_directory(slot, fh, stream);
            return Ok(());
        }
        if let Some(fd) = carried {
            fs.inodes.balance();
            fs.handles.adopt_file(slot, fh, nodeid, fd);
            return Ok(());
        }
        let flags = flags - OFlags::TRUNC;
        fs.check_open_mode(flags)?;
        fs.inodes.balance();
        fs.handles.adopt_file(slot, fh, nodeid, fs.open_inode(nodeid, flags)?);
        Ok(())
    }
}

impl Passthrough {
    /// Opens a file or directory below the shared directory, to open handles through it.
    pub(super) fn open_mount(&self, path: &str) -> Result<OwnedFd, Errno> {
        let root = self.inodes.root();
        if path == "." {
            return self.proc_fds.reopen(&root.fd, OFlags::RDONLY);
        }
        let fd = path::open_beneath(&root.fd, path.as_bytes(), REFER, FileMode::empty())?;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile | FileType::Directory => self.proc_fds.reopen(&fd, OFlags::RDONLY),
            _ => Err(Errno::NODEV),
        }
    }
}

pub(super) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn is_by_handle(inode: &Inode<'_>) -> bool {
    matches!(inode.location, Location::Handle(_))
}
