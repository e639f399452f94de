//! Coherence: what the kernel caches follows the version table of the daemon's coherence group.
//!
//! Each worker notes the moment of every request before it sends it, and which inodes and names the kernel learns of
//! from the reply ([`stage`]). A thread looks at the stamps of all inodes that the kernel knows ([`known`]), and has
//! the kernel drop the attributes and the data of those that were changed since they were fetched ([`scanner`]).
//! Another has it look up again all cached names in directories that were changed ([`expirer`]), because a stamp does
//! not say which of them.
//!
//! A reply that is older than a change may reach the kernel after the notification of that change. Therefore the moment
//! of a reply counts from when the kernel has it: the thread then finds the inode changed once more.
//!
//! The mount's own changes are stamped too. Where the kernel's caches show a change by themselves ([`own`]) and the
//! daemon's reply says how it has raised the table, the kernel drops the inode only once, a second or more later.
//!
//! Locks: those of [`known`], which says their order; each is held for a moment.

mod abort;
mod expirer;
mod known;
mod names;
mod own;
mod scanner;
mod stage;

use std::{
    ffi::OsString,
    fs::File,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use transom_user::{transport::VhostUser, window::VersionTable};
use transom_versions::{Moment, OwnChanges, Reader, Slot};
use transom_wire::{NodeId, ops::init::InitFlags};

use super::{MountError, forgets::parse_forgets, request::Request};
pub(super) use expirer::expire_until_end;
use known::{KnownInodes, NameSet};
use names::NameQueue;
pub(super) use names::{NAMES_THREAD_NAME, NameExpirer};
pub(super) use scanner::{THREAD_NAME, scan_until_end};
pub(super) use stage::CoherenceStage;

/// Returns the arguments of a transomd for a coherent mount: this process maps the table for reading, as the front end
/// alioth does, and everything may be cached for long.
pub(super) fn daemon_args() -> [OsString; 2] {
    ["--front-end=alioth".into(), "--cache=always".into()]
}

/// Names that may be cached until their directory is changed, in all directories. A name takes some 100 bytes.
const NAMES_MAX: usize = 1 << 18;

/// What the workers and the threads share.
pub(super) struct Coherence {
    table: Reader<VersionTable>,
    known: KnownInodes,
    /// The kernel can be told to look a name up again (HAS_EXPIRE_ONLY, Linux 6.2).
    expires_names: AtomicBool,
    /// The daemon's replies say how the mount's own changes have raised the table.
    has_trailers: AtomicBool,
    /// The kernel knows access control lists (POSIX_ACL).
    has_posix_acl: AtomicBool,
    /// Names in [`Self::known`], and those that the kernel is being told about.
    name_count: AtomicUsize,
    /// An inode became known, or was fetched again, as it was before a change that is in the table already.
    is_late: AtomicBool,
    /// The file that aborts the kernel's connection.
    abort: OnceLock<File>,
}

impl Coherence {
    /// Takes the version table of `device`.
    ///
    /// # Errors
    /// The daemon offers none, or none that can be used.
    pub(super) fn new(device: &VhostUser) -> Result<Self, MountError> {
        let table = device.versions().ok_or(MountError::NoVersionTable)?;
        let table = Reader::new(table.clone()).map_err(MountError::VersionTable)?;
        Ok(Self {
            table,
            known: KnownInodes::default(),
            expires_names: AtomicBool::new(false),
            has_trailers: AtomicBool::new(false),
            has_posix_acl: AtomicBool::new(false),
            name_count: AtomicUsize::new(0),
            is_late: AtomicBool::new(false),
            abort: OnceLock::new(),
        })
    }

    /// Notes that the kernel supports FUSE_EXPIRE_ONLY. Without it, names expire after a second.
    pub(super) fn set_expires_names(&self) {
        self.expires_names.store(true, Ordering::Relaxed);
    }

    /// Notes that the daemon's replies end with trailers, and what the kernel and the daemon have agreed on.
    pub(super) fn begin_trailers(&self, flags: InitFlags) {
        self.has_posix_acl.store(flags.contains(InitFlags::POSIX_ACL), Ordering::Relaxed);
        self.has_trailers.store(true, Ordering::Relaxed);
    }

    /// Returns the inodes that a request changes so that its reply says how, and the kernel's caches show it.
    fn shown_changes(&self, request: &Request<'_>) -> [Option<NodeId>; 2] {
        if !self.has_trailers.load(Ordering::Relaxed) {
            return [None, None];
        }
        own::shown_changes(request, self.has_posix_acl.load(Ordering::Relaxed))
    }

    /// Opens the file that aborts the connection of what is mounted at `mount_point`. Without it, [`Self::abort`] does
    /// nothing, and names are not followed.
    pub(super) fn prepare_abort(&self, mount_point: &Path) {
        match abort::open(mount_point) {
            Ok(file) => _ = self.abort.set(file),
            Err(errno) => {
                // A notification about a name waits for any request in the directory.
                self.expires_names.store(false, Ordering::Relaxed);
                tracing::warn!(
                    %errno,
                    mount_point = %mount_point.display(),
                    "fusectl is not there: names expire after a second, and the end of the mount may have to wait"
                );
            }
        }
    }

    /// Aborts the connection. A notification waits in the kernel for pages that nobody answers for once the workers
    /// have gone, and it keeps the connection alive.
    pub(super) fn abort(&self) {
        if let Some(mut file) = self.abort.get() {
            // Fails if it is unmounted.
            let _ = std::io::Write::write_all(&mut file, b"1");
        }
    }

    /// Notes a whole FORGET or BATCH_FORGET.
    pub(super) fn note_forget(&self, message: &[u8]) {
        parse_forgets(message).into_iter().for_each(|(nodeid, count)| self.forget(nodeid, count));
    }

    fn forget(&self, nodeid: NodeId, count: u64) {
        self.drop_names(self.known.forget(nodeid, count));
    }

    /// Returns whether the kernel is told of names that have expired.
    fn expires_names(&self) -> bool {
        self.expires_names.load(Ordering::Relaxed)
    }

    /// Returns whether names of a directory can be cached until the directory is changed.
    fn follows_names(&self, directory: NodeId) -> bool {
        self.expires_names() && self.name_count.load(Ordering::Relaxed) < NAMES_MAX && self.known.contains(directory)
    }

    /// Notes names of a directory that the kernel now has, from a reply of that moment.
    fn note_names(&self, directory: NodeId, names: impl Iterator<Item = Box<[u8]>>, moment: Moment) {
        self.name_count.fetch_add(self.known.note_names(directory, names), Ordering::Relaxed);
        self.note_fetched(directory, moment);
    }

    /// Has the kernel look up `names` of a directory again, unless so many wait for that already that they had better
    /// expire by themselves.
    fn expire_names(&self, queue: &NameQueue, directory: NodeId, names: NameSet) {
        if self.name_count.load(Ordering::Relaxed) > 2 * NAMES_MAX {
            return self.drop_names(names.len());
        }
        queue.push(directory, names);
    }

    /// Notes that `count` names are not cached any more.
    fn drop_names(&self, count: usize) {
        self.name_count.fetch_sub(count, Ordering::Relaxed);
    }

    /// Notes that the kernel now has something of an inode that was fetched at a moment.
    fn note_fetched(&self, nodeid: NodeId, moment: Moment) {
        if !self.known.note_fetched(nodeid, moment, |slot, fetched, own| self.is_valid(slot, fetched, own)) {
            self.is_late.store(true, Ordering::Release);
        }
    }

    /// Notes that a change of the mount's own to an inode is about to be sent.
    fn begin_change(&self, nodeid: NodeId) {
        self.known.begin_change(nodeid, |slot, fetched, own| self.is_valid(slot, fetched, own));
    }

    /// Notes that the kernel's caches do not show a change of the mount's own to an inode.
    fn disown(&self, nodeid: NodeId) {
        self.known.disown(nodeid);
        self.is_late.store(true, Ordering::Release);
    }

    /// Notes that a name in a directory is removed.
    fn drop_name(&self, directory: NodeId, name: &[u8]) {
        self.drop_names(self.known.drop_name(directory, name));
    }

    fn is_valid(&self, slot: Slot, fetched: Moment, own: &OwnChanges) -> bool {
        self.table.is_slot_valid_but_for(slot, fetched, own)
    }
}
