//! [`KnownInodes`]: the inodes that the kernel knows, the names that it has cached in each directory, and when what it
//! has of an inode was fetched.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use transom_versions::{Moment, OwnChanges, Raised, Slot};
use transom_wire::NodeId;

use super::own::RaisedSlots;

/// Number of shards: enough that a worker seldom waits for the thread that scans.
const SHARD_COUNT: usize = 16;

/// Scans that leave out an inode while a change of the mount's own to it is under way.
const POSTPONED_MAX: u8 = 10;

/// Changes after a gap that are kept until it is filled.
const UNJOINED_MAX: usize = 32;

/// The earliest time after the first of the mount's own changes at which the kernel drops what it has of an inode.
const DROP_AFTER: Duration = Duration::from_secs(1);
/// The latest time at which it does.
const DROP_AFTER_MAX: Duration = Duration::from_secs(5);
/// Between these, the time without own changes before the drop, so that it overtakes no reply to a request that follows
/// one.
const QUIET: Duration = Duration::from_millis(100);

/// Names in one directory.
pub(super) type NameSet = HashSet<Box<[u8]>>;

/// Inodes by nodeid. Each shard's lock is held for one lookup, or while the shard is scanned. That of the drops is held
/// for a moment with nothing under it, or under a shard's.
#[derive(Default)]
pub(super) struct KnownInodes {
    shards: [Mutex<HashMap<NodeId, KnownInode>>; SHARD_COUNT],
    /// Inodes that the mount itself has changed, and when to look whether the kernel is to drop them.
    drops: Mutex<VecDeque<(Instant, NodeId)>>,
}

struct KnownInode {
    slot: Slot,
    /// Everything that the kernel has cached of it was fetched at this moment or later.
    fetched: Moment,
    /// What this mount has changed since, and the kernel's caches show.
    own: OwnChanges,
    /// The same, after a gap that the reply to another change may fill: several workers deal with replies.
    unjoined: Vec<Raised>,
    /// Changes of the mount's own that are under way.
    changing: u32,
    /// Scans that may still leave it out because of them.
    postpones: u8,
    /// When the first and the last change were joined since the kernel was told to drop it.
    joined: Option<(Instant, Instant)>,
    /// References that the kernel counts.
    nlookup: u64,
    /// Of a directory: the names that the kernel may use without asking.
    names: NameSet,
}

/// An inode of which the kernel has something that was changed.
pub(super) struct StaleInode {
    pub(super) nodeid: NodeId,
    /// When the oldest of it was fetched.
    pub(super) fetched: Moment,
    pub(super) names: NameSet,
}

impl KnownInode {
    fn new(slot: Slot, fetched: Moment, nlookup: u64) -> Self {
        Self {
            slot,
            fetched,
            own: OwnChanges::default(),
            unjoined: Vec::new(),
            changing: 0,
            postpones: 0,
            joined: None,
            nlookup,
            names: NameSet::new(),
        }
    }

    /// Returns it as stale. It counts as fetched at `now` and without names.
    fn take(&mut self, nodeid: NodeId, now: Moment) -> StaleInode {
        let fetched = std::mem::replace(&mut self.fetched, now);
        (self.own, self.joined) = (OwnChanges::default(), None);
        StaleInode { nodeid, fetched, names: std::mem::take(&mut self.names) }
    }

    /// Joins what this mount has changed, up to the first gap while other changes are under way.
    fn join(&mut self) {
        self.unjoined.sort_unstable_by_key(|raised| raised.word);
        let is_idle = self.changing == 0 || self.unjoined.len() > UNJOINED_MAX;
        let gap = self.unjoined.iter().position(|raised| {
            let is_joined = is_idle || self.own.is_followed_by(*raised);
            if is_joined {
                self.own.join(*raised);
            }
            !is_joined
        });
        self.unjoined.drain(..gap.unwrap_or(self.unjoined.len()));
    }
}

impl KnownInodes {
    /// Counts a reference to an inode that is named in a reply to a request of that moment.
    pub(super) fn add(&self, nodeid: NodeId, slot: Slot, moment: Moment) {
        let mut shard = self.shard(nodeid).lock();
        shard.entry(nodeid).or_insert_with(|| KnownInode::new(slot, moment, 0)).nlookup += 1;
    }

    /// Notes the root, which has no references and is never forgotten.
    pub(super) fn add_root(&self, slot: Slot, moment: Moment) {
        let mut shard = self.shard(NodeId::ROOT).lock();
        shard.entry(NodeId::ROOT).or_insert_with(|| KnownInode::new(slot, moment, u64::MAX));
    }

    /// Drops `count` references. Ignores an inode that is not known. Returns the number of names in an inode that is
    /// not known any more.
    pub(super) fn forget(&self, nodeid: NodeId, count: u64) -> usize {
        if nodeid == NodeId::ROOT {
            return 0;
        }
        if let Entry::Occupied(mut entry) = self.shard(nodeid).lock().entry(nodeid) {
            entry.get_mut().nlookup = entry.get().nlookup.saturating_sub(count);
            if entry.get().nlookup == 0 {
                return entry.remove().names.len();
            }
        }
        0
    }

    /// Returns whether an inode is known.
    pub(super) fn contains(&self, nodeid: NodeId) -> bool {
        self.shard(nodeid).lock().contains_key(&nodeid)
    }

    /// Notes names of a directory that the kernel has cached. Returns how many of them are new; 0 if the directory is
    /// not known. To be followed by [`Self::note_fetched`] for the directory.
    pub(super) fn note_names(&self, directory: NodeId, names: impl Iterator<Item = Box<[u8]>>) -> usize {
        let mut shard = self.shard(directory).lock();
        let Some(inode) = shard.get_mut(&directory) else { return 0 };
        let before = inode.names.len();
        inode.names.extend(names);
        inode.names.len() - before
    }

    /// Drops a name of a directory, which the kernel does not cache any more. Returns 1, or 0 if it was not noted.
    pub(super) fn drop_name(&self, directory: NodeId, name: &[u8]) -> usize {
        let mut shard = self.shard(directory).lock();
        shard.get_mut(&directory).is_some_and(|inode| inode.names.remove(name)).into()
    }

    /// Notes that the kernel has something of an inode that was fetched at `moment`. Returns whether all that it has of
    /// the inode is valid.
    pub(super) fn note_fetched(
        &self,
        nodeid: NodeId,
        moment: Moment,
        is_valid: impl FnOnce(Slot, Moment, &OwnChanges) -> bool,
    ) -> bool {
        let mut shard = self.shard(nodeid).lock();
        let Some(inode) = shard.get_mut(&nodeid) else { return true };
        inode.fetched = earlier(inode.fetched, moment);
        is_valid(inode.slot, inode.fetched, &inode.own)
    }

    /// Notes that a change of the mount's own to an inode is about to be sent. To be followed by [`Self::end_change`].
    ///
    /// If all that the kernel has of the inode is valid, the next scans leave it out, so that the stamp of this change
    /// is not taken for another's before the reply says whose it is.
    pub(super) fn begin_change(&self, nodeid: NodeId, is_valid: impl FnOnce(Slot, Moment, &OwnChanges) -> bool) {
        if let Some(inode) = self.shard(nodeid).lock().get_mut(&nodeid) {
            if is_valid(inode.slot, inode.fetched, &inode.own) {
                inode.postpones = POSTPONED_MAX;
            } else if inode.changing == 0 {
                inode.postpones = 0;
            }
            inode.changing += 1;
        }
    }

    /// Notes that a change of the mount's own is done, which was sent after `moment`, and whose reply the kernel is
    /// about to get. `raised` has the slots that it has raised, or is empty if that is not known. If the kernel does
    /// not take the reply, [`Self::disown`] is to follow.
    ///
    /// If the kernel was told in the meantime to drop what it has of the inode, the change counts as another's: what
    /// was fetched since may be of before or after it. Such a drop does not show if the table has stood still since,
    /// and a request of another process that is under way may leave something older in the kernel's caches. So the
    /// kernel drops the inode later in any case, see [`Self::take_due`].
    pub(super) fn end_change(&self, nodeid: NodeId, moment: Moment, raised: &RaisedSlots, at: Instant) {
        let mut shard = self.shard(nodeid).lock();
        let Some(inode) = shard.get_mut(&nodeid) else { return };
        inode.changing = inode.changing.saturating_sub(1);
        let mut of_inode = raised.iter().filter(|(slot, _)| *slot == inode.slot.number()).peekable();
        if inode.fetched.epoch == moment.epoch && inode.fetched.clock <= moment.clock && of_inode.peek().is_some() {
            inode.unjoined.extend(of_inode.map(|(_, raised)| *raised));
            if inode.joined.is_none() {
                self.drops.lock().push_back((at + DROP_AFTER, nodeid));
            }
            inode.joined = Some((inode.joined.map_or(at, |(first, _)| first), at));
        }
        inode.join();
    }

    /// Appends the inodes that the mount itself has changed to `stale`, [`DROP_AFTER`] or more after the first change.
    /// They count as those of [`Self::take_stale`] do.
    pub(super) fn take_due(&self, at: Instant, now: Moment, stale: &mut Vec<StaleInode>) {
        while let Some(nodeid) = self.next_due(at) {
            let mut shard = self.shard(nodeid).lock();
            let Some(inode) = shard.get_mut(&nodeid) else { continue };
            let Some((first, last)) = inode.joined else { continue };
            let is_quiet = inode.changing == 0 && at >= last + QUIET;
            if at < first + DROP_AFTER || (!is_quiet && at < first + DROP_AFTER_MAX) {
                self.drops.lock().push_back((at + QUIET, nodeid));
            } else {
                stale.push(inode.take(nodeid, now));
            }
        }
    }

    /// Takes the first inode whose drop is due.
    fn next_due(&self, at: Instant) -> Option<NodeId> {
        let mut drops = self.drops.lock();
        drops.front().filter(|(due, _)| *due <= at)?;
        drops.pop_front().map(|(_, nodeid)| nodeid)
    }

    /// Takes all changes of the mount's own to an inode for another's: the kernel's caches do not show one of them.
    pub(super) fn disown(&self, nodeid: NodeId) {
        if let Some(inode) = self.shard(nodeid).lock().get_mut(&nodeid) {
            (inode.own, inode.joined) = (OwnChanges::default(), None);
            inode.unjoined.clear();
        }
    }

    /// Appends the inodes that are not valid to `stale`. They count as fetched at `now` and without names, since the
    /// caller has the kernel drop what it has of them. Returns whether to scan again though nothing may be stamped:
    /// `is_hot` was true of one, or one was left out.
    pub(super) fn take_stale(
        &self,
        now: Moment,
        is_valid: impl Fn(Slot, Moment, &OwnChanges) -> bool,
        is_hot: impl Fn(Slot) -> bool,
        stale: &mut Vec<StaleInode>,
    ) -> bool {
        let mut has_more = false;
        for shard in &self.shards {
            for (&nodeid, inode) in shard.lock().iter_mut().filter(|(_, it)| !is_valid(it.slot, it.fetched, &it.own)) {
                if inode.changing > 0 && inode.postpones > 0 {
                    inode.postpones -= 1;
                    has_more = true;
                    continue;
                }
                stale.push(inode.take(nodeid, now));
                has_more |= is_hot(inode.slot);
            }
        }
        has_more
    }

    fn shard(&self, nodeid: NodeId) -> &Mutex<HashMap<NodeId, KnownInode>> {
        &self.shards[nodeid.0 as usize % SHARD_COUNT]
    }
}

fn earlier(one: Moment, other: Moment) -> Moment {
    std::cmp::min_by_key(one, other, |moment| (moment.epoch, moment.clock))
}

#[cfg(test)]
#[path = "known_test.rs"]
mod tests;
