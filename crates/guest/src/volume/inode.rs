//! A file, directory or other inode of a share, for as long as it is referenced.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use transom_versions::OwnChanges;
use transom_wire::{
    Handle, NodeId,
    attr::Attr,
    linux::{S_IFDIR, S_IFLNK, S_IFREG},
};

use super::{Shared, judge::AskedAt, mapped::Mapped, write_back::WriteErrors};
use crate::{
    Platform,
    cache::{Validity, attributes::Attributes, data::Pages, directories::Listing, versions::SlotNumber},
    dax::{Blocked, Ranges},
    session::Session,
    sync::{Mutex, SleepLock, rank},
};

/// An inode; there is one for each nodeid that is referenced.
pub struct Inode<P: Platform> {
    pub(crate) shared: Arc<Shared<P>>,
    nodeid: NodeId,
    /// The type bits of the mode, which never change.
    file_type: u32,
    /// The slot in the version table, a [`SlotNumber`].
    slot: AtomicU32,
    /// The changes of the slot that this guest has made itself. Joined under the lock of `attributes`.
    pub(super) own: OwnChanges,
    /// Number of references that the server has counted, to be given back.
    lookups: AtomicU64,
    pub(crate) attributes: Mutex<P, { rank::LEAF }, Attributes>,
    /// The target of a symbolic link, once it was read.
    pub(super) symlink: Mutex<P, { rank::LEAF }, Option<Target>>,
    /// For a directory: its cached listing.
    pub(super) listing: Mutex<P, { rank::LEAF }, Option<Arc<Listing>>>,
    /// For a directory: the epoch of its cached names. No other inode has had it, not even one to which the server had
    /// given the same nodeid.
    names_epoch: AtomicU64,
    /// For a directory: counts this guest's changes of names. Replies to requests from before a change are not cached.
    names_changes: AtomicU64,
    /// The cached contents of a file.
    pub(crate) pages: Mutex<P, { rank::LEAF }, Pages>,
    /// Handles, with their flags, through which dirty pages can be written.
    pub(super) writers: Mutex<P, { rank::LEAF }, Vec<(Handle, u32)>>,
    /// Errors of delayed writes.
    pub(super) write_errors: Mutex<P, { rank::LEAF }, WriteErrors>,
    /// Held, across requests, by code that changes the size or writes within it.
    pub(crate) size_lock: SleepLock<P, { rank::SIZE }>,
    /// For a file that is mapped through the window: its ranges.
    ranges: Option<Ranges<P>>,
    pub(super) mapped: Mapped,
}

/// The target of a symbolic link, and how long it is valid.
pub(super) type Target = (Arc<[u8]>, Validity);

impl<P: Platform> Inode<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        nodeid: NodeId,
        file_type: u32,
        attributes: Attributes,
        slot: SlotNumber,
        lookups: u64,
        ranges: Option<Ranges<P>>,
    ) -> Arc<Self> {
        let epoch = shared.new_epoch();
        Arc::new(Self {
            shared,
            nodeid,
            file_type,
            slot: AtomicU32::new(slot.bits()),
            own: OwnChanges::default(),
            lookups: AtomicU64::new(lookups),
            attributes: Mutex::new(attributes),
            symlink: Mutex::default(),
            listing: Mutex::default(),
            names_epoch: AtomicU64::new(epoch),
            names_changes: AtomicU64::new(0),
            pages: Mutex::default(),
            writers: Mutex::default(),
            write_errors: Mutex::default(),
            size_lock: SleepLock::default(),
            ranges,
            mapped: Mapped::default(),
        })
    }

    /// Returns the server's nodeid.
    pub fn nodeid(&self) -> NodeId {
        self.nodeid
    }

    /// Returns the type bits of its mode.
    pub fn file_type(&self) -> u32 {
        self.file_type
    }

    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == S_IFDIR
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type == S_IFLNK
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type == S_IFREG
    }

    /// Returns its ranges in the window, if it is a file that is mapped.
    pub fn ranges(&self) -> Option<&Ranges<P>> {
        if P::HAS_WINDOWS { self.ranges.as_ref() } else { None }
    }

    pub(crate) fn take_ranges(&mut self) -> Option<Ranges<P>> {
        if P::HAS_WINDOWS { self.ranges.take() } else { None }
    }

    pub(crate) fn session(&self) -> &Session<P> {
        &self.shared.session
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// Returns the last known size, in bytes: a hint.
    pub(crate) fn last_size(&self) -> u64 {
        self.attributes.lock().last_size()
    }

    pub(super) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// Caches attributes that were requested at `asked_at`.
    pub(super) fn refresh(&self, attr: Attr, validity: Validity, asked_at: AskedAt) {
        self.learn_slot(&attr);
        if self.attributes.lock().put(attr, validity, asked_at.changes) {
            self.learn_size(attr.size.get());
        }
    }

    /// Returns its slot in the version table.
    pub(super) fn slot(&self) -> SlotNumber {
        SlotNumber::from_bits(self.slot.load(Ordering::Relaxed))
    }

    /// Records the slot; a server does not change an inode's number.
    pub(super) fn learn_slot(&self, attr: &Attr) {
        if self.lacks_slot() {
            self.slot.store(self.shared.slot_of(attr).bits(), Ordering::Relaxed);
        }
    }

    /// Records that this guest is changing, or has changed, the inode. Returns the time, by the volume's count.
    pub(crate) fn changed(&self) -> u64 {
        let mut attributes = self.attributes.lock();
        let now = self.shared.changed_at();
        attributes.change(now);
        now
    }

    /// Blocks pinning of what lies after `size`, and unmaps it, until the returned value is dropped: the file is about
    /// to be truncated there. The caller holds `size_lock`.
    pub(super) fn block_to_truncate(&self, size: u64) -> Option<Blocked<'_, P>> {
        let blocked = self.block(size..u64::MAX, true)?;
        blocked.unmap_behind(self, size);
        self.mapped.forget();
        Some(blocked)
    }

    pub(super) fn names_epoch(&self) -> u64 {
        self.names_epoch.load(Ordering::Acquire)
    }

    pub(super) fn names_changes(&self) -> u64 {
        self.names_changes.load(Ordering::Acquire)
    }

    /// Records that this guest is changing, or has changed, a name in this directory.
    pub(super) fn change_names(&self) {
        self.names_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Invalidates every cached name of this directory.
    pub(super) fn forget_names(&self) {
        self.change_names();
        self.names_epoch.store(self.shared.new_epoch(), Ordering::Release);
    }
}

impl<P: Platform> Drop for Inode<P> {
    fn drop(&mut self) {
        self.drop_data();
        self.drop_ranges();
        self.forget_locks();
        if self.nodeid != NodeId::ROOT {
            self.shared.table.remove(self);
            self.shared.session.forget(self.nodeid, *self.lookups.get_mut());
        }
    }
}
