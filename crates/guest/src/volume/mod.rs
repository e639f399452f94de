//! A share as a kernel's VFS sees it: inodes, open files, directory streams.
//!
//! [`Volume`] is begun over a [`Session`]; every operation names its [`Caller`], and whoever calls has checked
//! permissions (a server serves whoever the guest let through). [`Inode`]s are counted references: the last one to go
//! gives back, once, what the server has counted. What may be answered without asking lies in [`cache`](crate::cache).
//!
//! Locks, outermost first: that of write-backs, under an inode's only tried; an inode's `size_lock`, of another inode's
//! only tried (both are sleeping locks, held across requests); then, each for a moment and none together with another:
//! a shard of the inode table, a shard of the names, an inode's attributes, pages, link, listing, writers and write
//! errors, the rings of chunks and of dirty inodes, an open file's sequence, the table of locks. No reference to an
//! inode is dropped under one of the latter, and no request is sent. Debug builds
//! [check](crate::platform::Platform::with_held) that.

mod ageing;
mod attributes;
mod cached;
mod data;
mod directory;
mod inode;
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
        CacheOptions, Validity, attributes::Attributes, data::memory::Memory, directories::Listings, names::Names,
    },
    dax::{Dax, DaxOptions, Ranges, Window, WindowMemory, Worker},
    session::{Caller, Session},
    sync::{Mutex, rank},
};
use ageing::Ageing;
use locks::LocalLocks;
use table::Table;

pub use crate::cache::directories::Entry;
pub use attributes::{SetAttributes, SetTime};
pub use directory::DirectoryStream;
pub use inode::Inode;
pub use locks::{Lock, LockKind, LockOwner};
pub use open::OpenFile;

/// A share in use.
pub struct Volume<P: Platform> {
    shared: Arc<Shared<P>>,
    root: Arc<Inode<P>>,
    _ageing: Ageing<P>,
    _reclaiming: Option<Worker<P>>,
}

/// What the volume and its inodes have in common.
pub(crate) struct Shared<P: Platform> {
    pub(crate) session: Session<P>,
    pub(crate) options: CacheOptions,
    pub(crate) names: Names<P, Inode<P>>,
    pub(crate) memory: Memory<P, Inode<P>>,
    listings: Listings,
    /// Where files are mapped, and which.
    window: Option<(Arc<Window<P>>, DaxOptions)>,
    table: Table<P>,
    /// Those that the server does not keep.
    locks: LocalLocks<P>,
    /// Of a write that had waited, whatever the file, until the volume's syncfs or unmount has told it.
    write_error: Mutex<P, { rank::LEAF }, Option<Errno>>,
    /// Counts this guest's changes of inodes. An answer tells nothing of an inode that was changed after it was asked
    /// for.
    changes: AtomicU64,
    /// Names owners of locks.
    owners: AtomicU64,
    /// Names the epochs of directories.
    epochs: AtomicU64,
}

impl<P: Platform> Volume<P> {
    /// Takes a session into use, and no window. Sends nothing.
    pub fn new(session: Session<P>, options: CacheOptions) -> Self {
        Self::begin(session, options, None)
    }

    /// Takes a session into use, and the window of its device: nobody else maps anything there.
    ///
    /// Files are mapped where the session has settled MAP_ALIGNMENT, and [`Dax::Inode`] needs HAS_INODE_DAX. Sends
    /// nothing.
    pub fn with_window(
        session: Session<P>,
        options: CacheOptions,
        memory: Arc<dyn WindowMemory>,
        dax: DaxOptions,
    ) -> Self {
        let is_used = dax.dax != Dax::Never && session.negotiated().map_alignment.is_some();
        let window = is_used.then(|| (Arc::new(Window::new(memory)), dax));
        Self::begin(session, options, window.filter(|(window, _)| window.ranges() > 0))
    }

    fn begin(session: Session<P>, options: CacheOptions, window: Option<(Arc<Window<P>>, DaxOptions)>) -> Self {
        // What is kept of contents lies in memory that requests need too.
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
            table: Table::new(),
            locks,
            write_error: Mutex::default(),
            changes: AtomicU64::new(0),
            owners: AtomicU64::new(0),
            epochs: AtomicU64::new(0),
        });
        let root = Inode::new(Arc::clone(&shared), NodeId::ROOT, S_IFDIR, Attributes::default(), 0, None);
        let ageing = Ageing::start(&shared);
        let reclaiming = shared.window.as_ref().map(|(window, _)| Worker::start(window, &shared));
        Self { shared, root, _ageing: ageing, _reclaiming: reclaiming }
    }

    /// The directory that is shared.
    pub fn root(&self) -> &Arc<Inode<P>> {
        &self.root
    }

    /// The session underneath.
    pub fn session(&self) -> &Session<P> {
        &self.shared.session
    }

    /// Where files are mapped, if they are.
    pub fn window(&self) -> Option<&Arc<Window<P>>> {
        self.shared.window.as_ref().map(|(window, _)| window)
    }

    /// Size and free space of the file system that `inode` is in.
    pub fn statfs(&self, caller: &Caller<'_>, inode: &Inode<P>) -> Result<StatfsOut, Errno> {
        self.session().statfs(caller, inode.nodeid())
    }

    /// Makes all of the share durable. Errors: also that of a write that had waited, whatever the file, once.
    pub fn syncfs(&self, caller: &Caller<'_>) -> Result<(), Errno> {
        self.shared.write_back(0);
        self.session().syncfs(caller, NodeId::ROOT)?;
        self.shared.take_write_error()
    }

    /// Bytes of files' contents that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.shared.memory.used_bytes()
    }

    /// Forgets every name, and gives back the references to inodes that nobody else holds.
    pub fn drop_names(&self) {
        self.shared.names.clear();
    }

    /// Writes back, forgets every name and ends the session, whatever is still referenced: operations of what is left
    /// fail. Errors: those of the channel, and that of a write that had waited and that no syncfs has told.
    pub fn unmount(&self) -> Result<(), Errno> {
        self.shared.write_back(0);
        self.shared.names.clear();
        self.session().destroy()?;
        self.shared.take_write_error()
    }
}

impl<P: Platform> Drop for Volume<P> {
    /// Names keep inodes and these keep the session, which therefore ends with the last inode.
    fn drop(&mut self) {
        self.shared.names.clear();
    }
}

impl<P: Platform> Shared<P> {
    pub(crate) fn now_ns(&self) -> u64 {
        self.session.platform().now_ns()
    }

    /// Ranges for a new inode, where it is a file that is mapped. It stays one, or none, whatever becomes of it.
    fn ranges_of(&self, attr: &Attr) -> Option<Ranges<P>> {
        let (window, options) = self.window.as_ref()?;
        let is_marked = attr.flags.get() & AttrFlags::DAX.bits() != 0;
        let is_wanted = options.dax == Dax::Always || is_marked;
        let is_file = attr.mode.get() & S_IFMT == S_IFREG;
        let is_taken = is_file && is_wanted && attr.size.get() >= options.size_min_bytes;
        is_taken.then(|| Ranges::new(Arc::clone(window)))
    }

    /// The time by the count of changes: to be taken before a request whose answer is to be kept.
    fn asked_at(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The time of a change.
    fn changed_at(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// An owner of locks that is nobody else.
    pub(crate) fn new_owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A state of a directory's names that was never before.
    fn new_epoch(&self) -> u64 {
        self.epochs.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the reference that came with `entry`, which names an inode and was asked for at `asked_at`.
    fn adopt(self: &Arc<Self>, entry: &EntryOut, asked_at: u64) -> Result<Arc<Inode<P>>, Errno> {
        let validity = self.attr_validity(entry.attr_valid.get(), entry.attr_valid_nsec.get());
        self.table.adopt(self, entry.nodeid.into(), entry.attr, validity, asked_at)
    }

    pub(crate) fn attr_validity(&self, seconds: u64, nanoseconds: u32) -> Validity {
        Validity::of_reply(self.options.mode, self.now_ns(), seconds, nanoseconds)
    }

    fn entry_validity(&self, entry: &EntryOut) -> Validity {
        self.attr_validity(entry.entry_valid.get(), entry.entry_valid_nsec.get())
    }
}
