//! A share as a kernel's VFS sees it: inodes, open files, directory streams.
//!
//! [`Volume`] works over a [`Session`]. Every operation names its [`Caller`], whose permissions have been checked
//! already (the server trusts the guest to do so). [`Inode`]s are reference-counted: dropping the last one
//! forgets, once, everything that the server has counted. Cached answers are in [`cache`](crate::cache).
//!
//! Locks, outermost first: that of write-backs, which is only tried under an inode's; an inode's `size_lock`, which is
//! only tried under another inode's (both are sleeping locks, held across requests); then, each for a short section and
//! never two together: a shard of the inode table, a shard of the names, an inode's attributes, pages, link, listing,
//! writers and write errors, the rings of chunks and of dirty inodes, an open file's sequence, the table of locks. No
//! reference to an inode is dropped under one of the latter, and no request is sent. Debug builds
//! [check](crate::platform::Platform::with_held) that.

mod ageing;
mod attributes;
mod cached;
mod data;
mod directory;
mod inode;
mod judge;
mod locks;
mod mapped;
mod names;
mod open;
mod progress;
mod ranges;
mod table;
mod write_back;
mod xattr;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use transom_wire::{
    NodeId,
    attr::{Attr, AttrFlags, EntryOut},
    linux::{S_IFDIR, S_IFMT, S_IFREG},
    ops::{init::InitFlags, statfs::StatfsOut},
};

use crate::{
    Errno, Platform,
    cache::{
        CacheMode, CacheOptions, Versions, attributes::Attributes, data::memory::Memory, directories::Listings,
        names::Names, versions::SlotNumber,
    },
    dax::{Dax, DaxOptions, Ranges, Window, WindowMemory, Worker},
    session::{Caller, Changes, Session},
    sync::{Mutex, rank},
};
use ageing::Ageing;
use judge::AskedAt;
use locks::LocalLocks;
use table::Table;

pub use crate::cache::directories::Entry;
pub use attributes::{SetAttributes, SetTime};
pub use directory::DirectoryStream;
pub use inode::Inode;
pub use locks::{Lock, LockKind, LockOwner};
pub use open::OpenFile;

/// A mounted share.
pub struct Volume<P: Platform> {
    shared: Arc<Shared<P>>,
    root: Arc<Inode<P>>,
    _ageing: Ageing<P>,
    _reclaiming: Option<Worker<P>>,
}

/// What a volume uses of its device's shared memory.
#[derive(Default)]
pub struct Regions {
    /// The window into which files are mapped, in which nobody else maps anything.
    pub window: Option<(Arc<dyn WindowMemory>, DaxOptions)>,
    /// The version table, for [`CacheMode::Shared`].
    pub versions: Option<Versions>,
}

/// What the volume and its inodes share.
pub(crate) struct Shared<P: Platform> {
    pub(crate) session: Session<P>,
    pub(crate) options: CacheOptions,
    pub(crate) names: Names<P, Inode<P>>,
    pub(crate) memory: Memory<P, Inode<P>>,
    listings: Listings,
    /// The window through which files are mapped, and which files are.
    window: Option<(Arc<Window<P>>, DaxOptions)>,
    /// Present if the mode is [`CacheMode::Shared`].
    versions: Option<Versions>,
    table: Table<P>,
    /// Locks that the server does not keep.
    locks: LocalLocks<P>,
    /// Error of a delayed write to any file, until the volume's syncfs or unmount has reported it.
    write_error: Mutex<P, { rank::LEAF }, Option<Errno>>,
    /// Counts this guest's changes of inodes. A reply says nothing about an inode that was changed after the request
    /// was sent.
    changes: AtomicU64,
    /// Counter for owners of locks.
    owners: AtomicU64,
    /// Counter for epochs of directories.
    epochs: AtomicU64,
}

impl<P: Platform> Volume<P> {
    /// Creates a volume over a session, without a window. Sends nothing.
    pub fn new(session: Session<P>, options: CacheOptions) -> Self {
        Self::with_regions(session, options, Regions::default())
    }

    /// Creates a volume over a session, with the window of its device. See [`Self::with_regions`].
    pub fn with_window(
        session: Session<P>,
        options: CacheOptions,
        memory: Arc<dyn WindowMemory>,
        dax: DaxOptions,
    ) -> Self {
        Self::with_regions(session, options, Regions { window: Some((memory, dax)), ..Regions::default() })
    }

    /// Creates a volume over a session, with shared memory of its device. Sends nothing.
    ///
    /// Files are mapped if the session has negotiated MAP_ALIGNMENT, and the platform
    /// [has windows](Platform::HAS_WINDOWS); [`Dax::Inode`] also needs HAS_INODE_DAX. In
    /// [`CacheMode::Shared`], nothing is cached without a version table.
    pub fn with_regions(session: Session<P>, mut options: CacheOptions, regions: Regions) -> Self {
        let has_alignment = session.negotiated().map_alignment.is_some();
        let window = regions.window.filter(|(_, dax)| P::HAS_WINDOWS && dax.dax != Dax::Never && has_alignment);
        let window = window.map(|(memory, dax)| (Arc::new(Window::new(memory)), dax));
        let window = window.filter(|(window, _)| window.ranges() > 0);
        let versions = regions.versions.filter(|_| options.mode == CacheMode::Shared);
        if options.mode == CacheMode::Shared && versions.is_none() {
            options.mode = CacheMode::None;
        }
        // Cached contents lie in memory that requests need too.
        let data_max_bytes = options.data_max_bytes.min(session.channel().keepable_bytes());
        let flags = session.negotiated().flags;
        let has_none = |family| !flags.contains(family);
        let locks = LocalLocks::new(has_none(InitFlags::POSIX_LOCKS), has_none(InitFlags::FLOCK_LOCKS));
        let shared = Arc::new(Shared {
            session,
            options,
            names: Names::new(options.names_max),
            memory: Memory::new(data_max_bytes),
            listings: Listings::new(options.directories_max_bytes),
            window,
            versions,
            table: Table::new(),
            locks,
            write_error: Mutex::default(),
            changes: AtomicU64::new(0),
            owners: AtomicU64::new(0),
            epochs: AtomicU64::new(0),
        });
        let root =
            Inode::new(Arc::clone(&shared), NodeId::ROOT, S_IFDIR, Attributes::default(), SlotNumber::UNKNOWN, 0, None);
        let ageing = Ageing::start(&shared);
        let reclaiming = shared.window().map(|(window, _)| Worker::start(window, &shared));
        Self { shared, root, _ageing: ageing, _reclaiming: reclaiming }
    }

    /// Returns the shared directory.
    pub fn root(&self) -> &Arc<Inode<P>> {
        &self.root
    }

    /// Returns the session.
    pub fn session(&self) -> &Session<P> {
        &self.shared.session
    }

    /// Returns the changes that others make in the share, or `None` if the server does not tell of any. They do not
    /// depend on the cache, and do not change what is in it.
    pub fn changes(&self) -> Option<Changes> {
        self.session().changes()
    }

    /// Returns the window, if files are mapped.
    pub fn window(&self) -> Option<&Arc<Window<P>>> {
        self.shared.window().map(|(window, _)| window)
    }

    /// Returns size and free space of the file system that `inode` is in.
    pub fn statfs(&self, caller: &Caller<'_>, inode: &Inode<P>) -> Result<StatfsOut, Errno> {
        self.session().statfs(caller, inode.nodeid())
    }

    /// Makes all of the share durable. Errors: also that of a delayed write to any file, once.
    pub fn syncfs(&self, caller: &Caller<'_>) -> Result<(), Errno> {
        self.shared.write_back(0);
        self.session().syncfs(caller, NodeId::ROOT)?;
        self.shared.take_write_error()
    }

    /// Returns the number of bytes of cached file contents.
    pub fn kept_bytes(&self) -> usize {
        self.shared.memory.used_bytes()
    }

    /// Drops every cached name, and returns the references to inodes that nobody else holds.
    pub fn drop_names(&self) {
        self.shared.names.clear();
    }

    /// Writes back dirty data, drops every cached name and ends the session, whatever is still referenced: later
    /// operations on it fail. Errors: those of the channel, and that of a delayed write that no syncfs has reported.
    pub fn unmount(&self) -> Result<(), Errno> {
        self.shared.write_back(0);
        self.shared.names.clear();
        self.session().destroy()?;
        self.shared.take_write_error()
    }
}

impl<P: Platform> Drop for Volume<P> {
    /// Names reference inodes, which reference the session, so the session ends with the last inode.
    fn drop(&mut self) {
        self.shared.names.clear();
    }
}

impl<P: Platform> Shared<P> {
    pub(crate) fn now_ns(&self) -> u64 {
        self.session.platform().now_ns()
    }

    fn window(&self) -> Option<&(Arc<Window<P>>, DaxOptions)> {
        if P::HAS_WINDOWS { self.window.as_ref() } else { None }
    }

    /// Creates ranges for a new inode if it is a file that is to be mapped. An inode never changes in this.
    fn ranges_of(&self, attr: &Attr) -> Option<Ranges<P>> {
        let (window, options) = self.window()?;
        let is_marked = attr.flags.get() & AttrFlags::DAX.bits() != 0;
        let is_wanted = options.dax == Dax::Always || is_marked;
        let is_file = attr.mode.get() & S_IFMT == S_IFREG;
        let is_taken = is_file && is_wanted && attr.size.get() >= options.size_min_bytes;
        is_taken.then(|| Ranges::new(Arc::clone(window)))
    }

    /// Returns the time of a change.
    fn changed_at(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns a new owner of locks.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns a new epoch for a directory's names.
    fn new_epoch(&self) -> u64 {
        self.epochs.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the reference that came with `entry`, which names an inode and was requested at `asked_at`.
    fn adopt(self: &Arc<Self>, entry: &EntryOut, asked_at: AskedAt) -> Result<Arc<Inode<P>>, Errno> {
        let validity = self.validity(asked_at, entry.attr_valid.get(), entry.attr_valid_nsec.get());
        self.table.adopt(self, entry.nodeid.into(), entry.attr, validity, asked_at)
    }
}
