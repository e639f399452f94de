//! Coherence groups: daemons that share one directory and tell each other's guests what they have changed.
//!
//! A group is a file ([`file`]) in a private directory ([`location`]): the version table of `transom-versions`, which
//! guests map for reading, and after it what only daemons use ([`area`]). A daemon of the group is a [`Group`]: it
//! holds the lock of one record for as long as it lives ([`members`]), stamps what it has changed, counts the files
//! that its guest may change without a request ([`heat`]), and takes turns with the others where a name's inode must
//! not change between a look and a system call ([`names`]). A thread watches the records of the others ([`watch`]):
//! whoever dies without signing off may have left a change without a stamp, so all caches are declared invalid. One
//! member stamps what other processes of the host change ([`host_watch`]). Whatever is written to the table is written
//! to the copies of guests whose front ends map everything writable ([`table`], [`mirrors`]).
//!
//! Nothing here takes a lock of this process, except to fill a mirror and to give it up. Whatever a peer writes into
//! the file is only compared, never used as an index.

mod area;
mod error;
mod fault;
mod file;
mod heat;
mod host_watch;
mod location;
mod mapping;
mod members;
mod mirrors;
mod names;
mod table;
mod watch;

#[cfg(test)]
mod group_test;
#[cfg(test)]
mod host_watch_test;
#[cfg(test)]
mod mirrors_test;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::SeqCst},
};

use rustix::fs::{OFlags, fstat};
use transom_versions::{Moment, Raised, Reader, Slot, Stamp, Writer};

use crate::sysfd::ProcFds;
use area::{Area, RecordWord};
use file::MirrorFile;
use host_watch::HostWatch;
use mapping::Mapping;
use members::Record;
use mirrors::Mirrors;
use table::Table;
use watch::Watch;

pub use error::GroupError;
pub use file::TableFile;
pub use host_watch::HostStamps;
pub use location::GroupLocation;
pub use names::NamesTurn;

/// The most daemons in one group: their records, and the words of each, have fixed places in the file.
pub const MEMBERS_MAX: usize = 64;

/// A daemon's membership in a group, until it is dropped.
#[derive(Debug)]
pub struct Group {
    // Ended before the rest: the thread uses the file.
    _watch: Watch,
    inner: Arc<Inner>,
}

/// What the thread that watches shares with the rest.
#[derive(Debug)]
struct Inner {
    /// An open file description of this process alone, whose locks end with it.
    file: OwnedFd,
    /// The same file, open for reading only.
    for_guests: OwnedFd,
    table: Table,
    /// The mirror of this daemon's guest, if it has one.
    mirror: OnceLock<ReservedMirror>,
    area: Area,
    record: Record,
    host_watch: HostWatch,
}

#[derive(Debug)]
struct ReservedMirror {
    number: usize,
    fd: OwnedFd,
    /// Held while the mirror is filled, and while it is given up: what is given up must not be filled afterwards.
    state: Mutex<MirrorState>,
}

impl ReservedMirror {
    fn state(&self) -> MutexGuard<'_, MirrorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MirrorState {
    /// Nobody has had the mirror.
    Reserved,
    /// The front end may have it.
    Used,
    /// The daemon has left the group.
    GivenUp,
}

impl Group {
    /// Joins the group whose table is `file`, for a daemon that shares the directory or file `root`.
    ///
    /// Call it in the process that serves, after the last fork. Waits while another daemon joins.
    ///
    /// # Errors
    /// If the group shares another directory, has as many members as it can have, or there is no space for what this
    /// one writes.
    pub fn join(file: &TableFile, root: impl AsFd, proc_fds: &ProcFds) -> Result<Self, GroupError> {
        let root = fstat(root).map_err(GroupError::Root)?;
        let reopen = |flags| proc_fds.reopen(&file.fd, flags).map_err(GroupError::Reopen);
        // Descriptors that were inherited over a fork would share their locks with those of the other process.
        let (own, for_guests) = (reopen(OFlags::RDWR)?, reopen(OFlags::RDONLY)?);
        let mapping = Mapping::new(&own, file.len_bytes).map_err(GroupError::Map)?;
        let table = Writer::new(mapping.clone())?;
        let area = Area::new(mapping, table.reader().slots());
        let mirrors = Mirrors::new(area.clone(), &table, &file.mirrors)?;
        let table = Table::new(table, mirrors);
        let record = members::join(&own, &table, &area, (root.st_dev, root.st_ino))?;
        let inner = Arc::new(Inner {
            file: own,
            for_guests,
            table,
            mirror: OnceLock::new(),
            area,
            record,
            host_watch: HostWatch::default(),
        });
        let watch = Watch::start(&inner).map_err(GroupError::Thread)?;
        Ok(Self { _watch: watch, inner })
    }

    /// Returns a descriptor of the table for guests to map: open for reading only. The table is at its beginning.
    pub fn table_fd(&self) -> BorrowedFd<'_> {
        self.inner.for_guests.as_fd()
    }

    /// Reserves a mirror of the table, which the guest of this daemon may write without harm to others: for a front end
    /// that maps everything writable. Call it once. Returns a descriptor that can write, or `None` if guests of the
    /// group have used all mirrors. Before anyone gets it, call the function of [`Self::mirror_starter`]. Waits while
    /// another daemon joins.
    ///
    /// # Errors
    /// If there is no space for the mirror.
    pub fn reserve_mirror(&self, file: TableFile) -> Result<Option<BorrowedFd<'_>>, GroupError> {
        let Inner { file: own, table, area, record, mirror, .. } = &*self.inner;
        let Some(number) = members::reserve_mirror(own, table, area, record)? else { return Ok(None) };
        let Some(MirrorFile { fd, .. }) = file.mirrors.into_iter().nth(number) else { return Ok(None) };
        // A store into a hole that finds the disk full would be lost.
        file::reserve_space(&fd, 0..self.table_len_bytes() as usize)?;
        Ok(Some(mirror.get_or_init(|| ReservedMirror { number, fd, state: MirrorState::Reserved.into() }).fd.as_fd()))
    }

    /// Returns a function that fills the mirror and has it written from then on; calls after the first do nothing. It
    /// returns whether a front end may have the mirror: not any more once the group is dropped, as others may get it.
    pub fn mirror_starter(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let inner = Arc::clone(&self.inner);
        move || {
            let Inner { table, area, record, mirror, .. } = &*inner;
            let Some(mirror) = mirror.get() else { return false };
            let mut state = mirror.state();
            if *state == MirrorState::Reserved {
                area.record(record.index, RecordWord::Mirror).store(mirror.number as u64 + 1, SeqCst);
                table.mirrors().start(mirror.number, table.master());
                *state = MirrorState::Used;
            }
            *state == MirrorState::Used
        }
    }

    /// Returns the length of the table in bytes, without what only daemons use.
    pub fn table_len_bytes(&self) -> u64 {
        transom_versions::layout::len_bytes(self.inner.table.reader().slots().ilog2()) as u64
    }

    /// Returns the slot of an inode.
    #[inline]
    pub fn slot(&self, ino: u64) -> Slot {
        self.inner.table.reader().slot(ino)
    }

    /// Stamps inodes that were changed. Call it after the change and before the reply.
    #[inline]
    pub fn stamp(&self, slots: &[Slot]) -> Stamp {
        self.inner.table.stamp(slots)
    }

    /// As [`Self::stamp`]; calls `each` with each slot and how it was raised.
    pub fn stamp_each(&self, slots: &[Slot], each: impl FnMut(Slot, Raised)) -> Stamp {
        self.inner.table.stamp_each(slots, each)
    }

    /// Declares everything that any guest has cached invalid, because it is not known what has changed.
    pub fn invalidate_all(&self) {
        self.inner.table.raise_epoch();
    }

    /// Waits until no other daemon or thread of the group changes names in these directories. Blocks for a bounded
    /// time: see [`NamesTurn::is_exclusive`].
    pub fn take_turn(&self, directories: [Option<Slot>; 2]) -> NamesTurn<'_> {
        NamesTurn::take(&self.inner.area, self.inner.record.index, directories)
    }

    /// Notes that the guest may change an inode without a request, so that nobody uses what is cached of it. Each call
    /// is undone by one call of [`Self::cool`].
    pub fn heat(&self, slot: Slot) {
        heat::heat(&self.inner.table, &self.inner.area, self.inner.record.index, slot);
    }

    /// Undoes one call of [`Self::heat`]. With the last one of the group, the inode gets a new stamp.
    pub fn cool(&self, slot: Slot) {
        heat::cool(&self.inner.table, &self.inner.area, self.inner.record.index, slot);
    }

    /// Says which pid namespace numbers this process so that others know it by its pid.
    pub fn set_pid_namespace(&self, inode: u64) {
        let Inner { area, record, .. } = &*self.inner;
        area.record(record.index, RecordWord::PidNamespace).store(inode, SeqCst);
    }

    /// Returns the pids of the members that are numbered in this process's pid namespace, if that is known.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let Inner { area, record, .. } = &*self.inner;
        let namespace = |index| area.record(index, RecordWord::PidNamespace).load(SeqCst);
        let own = namespace(record.index);
        let members = (0..MEMBERS_MAX).filter(move |&index| own != 0 && area.is_live(index) && namespace(index) == own);
        members.filter_map(|index| area.record(index, RecordWord::Pid).load(SeqCst).try_into().ok())
    }

    /// Offers to stamp the host's own changes: a source of changes that sees all of them is open. One member of the
    /// group does it at a time: see [`Self::watches_host`]. With `keeps_changes`, nothing is read from the source until
    /// it is this member's turn.
    pub fn offer_host_watch(&self, keeps_changes: bool) {
        self.inner.host_watch.offer(&self.inner, keeps_changes);
    }

    /// Withdraws the offer, because the source sees no more changes.
    pub fn withdraw_host_watch(&self) {
        let Inner { host_watch, .. } = &*self.inner;
        host_watch.withdraw(&self.inner);
        host_watch.settle(&self.inner);
    }

    /// Returns whether this member has to stamp the host's own changes, those included that its source was sent before.
    pub fn watches_host(&self) -> bool {
        self.inner.host_watch.is_held()
    }

    /// Stamps inodes that another process of the host has changed.
    pub fn stamp_host_change(&self, slots: &[Slot]) {
        self.stamp(slots);
        self.host_stamps().count();
    }

    /// Returns what this member has stamped of the host's own changes.
    pub fn host_stamps(&self) -> &HostStamps {
        self.inner.host_watch.stamps()
    }

    /// Returns the number of members, this daemon included.
    pub fn members(&self) -> usize {
        (0..MEMBERS_MAX).filter(|&index| self.inner.area.is_live(index)).count()
    }

    /// Returns the table as guests see it.
    pub fn now(&self) -> Moment {
        self.inner.table.reader().now()
    }

    /// Returns whether what was fetched of an inode at that moment may still be used.
    pub fn is_valid(&self, ino: u64, fetched: Moment) -> bool {
        self.inner.table.reader().is_valid(ino, fetched)
    }

    /// Returns the table for reading, as guests do.
    pub fn reader(&self) -> &Reader<impl AsRef<[transom_versions::AtomicU64]> + use<>> {
        self.inner.table.reader()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Inner { file, table, mirror, area, record, .. } = &*self.inner;
        heat::orphan(table, area, record.index);
        // Another member takes over, and lacks nothing: it has been sent the same changes.
        self.inner.host_watch.withdraw(&self.inner);
        // Waits while the thread that offers the mirror fills it.
        let mut state = mirror.get().map(ReservedMirror::state);
        if let Some(state) = &mut state {
            **state = MirrorState::GivenUp;
        }
        members::give_up_mirror(table, area, record.index);
        drop(state);
        members::sign_off(file, area, record);
    }
}
