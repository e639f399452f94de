//! A file, directory or other inode of a share, while somebody references it.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};

use transom_wire::{
    Handle, NodeId,
    attr::Attr,
    linux::{S_IFDIR, S_IFLNK, S_IFREG},
};

use super::{Shared, mapped::Mapped, write_back::WriteErrors};
use crate::{
    Platform,
    cache::{Validity, attributes::Attributes, data::Pages, directories::Listing},
    dax::{Blocked, Ranges},
    session::Session,
    sync::{Mutex, SleepLock, rank},
};

/// An inode; there is one for each nodeid that is referenced.
pub struct Inode<P: Platform> {
    pub(crate) shared: Arc<Shared<P>>,
    nodeid: NodeId,
    /// The bits of the mode that say what it is: they never change.
    file_type: u32,
    /// How many references the server has counted and is to be told of.
    lookups: AtomicU64,
    pub(crate) attributes: Mutex<P, { rank::LEAF }, Attributes>,
    /// Where a symbolic link leads, once it was asked for.
    pub(super) symlink: Mutex<P, { rank::LEAF }, Option<Arc<[u8]>>>,
    /// Of a directory: its contents.
    pub(super) listing: Mutex<P, { rank::LEAF }, Option<Arc<Listing>>>,
    /// Of a directory: the names that hold were fetched in this epoch. No other inode has had it, not even one that the
    /// server had given the same nodeid.
    names_epoch: AtomicU64,
    /// Of a directory: counts this guest's changes of names. What was asked before one is not kept.
    names_changes: AtomicU64,
    /// What is kept of a file's contents.
    pub(crate) pages: Mutex<P, { rank::LEAF }, Pages>,
    /// Handles through which dirty pages are written, with their flags.
    pub(super) writers: Mutex<P, { rank::LEAF }, Vec<(Handle, u32)>>,
    /// Of writes that had waited.
    pub(super) write_errors: Mutex<P, { rank::LEAF }, WriteErrors>,
    /// Held by who changes the size, or writes where it lies: across requests.
    pub(crate) size_lock: SleepLock<P, { rank::SIZE }>,
    /// Of a file that is mapped through the window: which parts of it are.
    ranges: Option<Ranges<P>>,
    pub(super) mapped: Mapped,
}

impl<P: Platform> Inode<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        nodeid: NodeId,
        file_type: u32,
        attributes: Attributes,
        lookups: u64,
        ranges: Option<Ranges<P>>,
    ) -> Arc<Self> {
        let epoch = shared.new_epoch();
        Arc::new(Self {
            shared,
            nodeid,
            file_type,
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

    /// What the server calls it.
    pub fn nodeid(&self) -> NodeId {
        self.nodeid
    }

    /// The bits of its mode that say what it is.
    pub fn file_type(&self) -> u32 {
        self.file_type
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == S_IFDIR
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type == S_IFLNK
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type == S_IFREG
    }

    /// Where parts of it lie in the window, where it is a file that is mapped.
    pub fn ranges(&self) -> Option<&Ranges<P>> {
        self.ranges.as_ref()
    }

    pub(crate) fn take_ranges(&mut self) -> Option<Ranges<P>> {
        self.ranges.take()
    }

    pub(crate) fn session(&self) -> &Session<P> {
        &self.shared.session
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// The size that was told last, in bytes: a hint.
    pub(crate) fn last_size(&self) -> u64 {
        self.attributes.lock().last_size()
    }

    pub(super) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes attributes that were asked for at `asked_at`.
    pub(super) fn refresh(&self, attr: Attr, validity: Validity, asked_at: u64) {
        if self.attributes.lock().put(attr, validity, asked_at) {
            self.learn_size(attr.size.get());
        }
    }

    /// Says that this guest is changing, or has changed, something about the inode. Gives when, by the volume's count.
    pub(crate) fn changed(&self) -> u64 {
        let mut attributes = self.attributes.lock();
        let now = self.shared.changed_at();
        attributes.change(now);
        now
    }

    /// Keeps what lies behind `size` from being pinned, and unmaps it, until what is returned is dropped: the file is
    /// about to end there. The caller holds `size_lock`.
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

    /// Says that this guest is changing, or has changed, a name in this directory.
    pub(super) fn change_names(&self) {
        self.names_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets no kept name of this directory hold any longer.
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
