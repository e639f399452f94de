//! What follows the table in the group's file, for daemons only. Words of 64 bits:
//!
//! | what | words |
//! |---|---|
//! | layout of the area; device and inode of the shared directory; mirrors that are used (2), and ever were (2) | 8 |
//! | records of members, 8 words each | 8 × 64 |
//! | turns to change names: 0, or the holder's index and 1 | 1024 |
//! | for each member and for orphans: how many hot files has each slot | 65 × slots |
//!
//! The last part is sparse: a member takes space for its own counts when it joins. The rest has space from the
//! beginning, because a store without space would be SIGBUS.

use std::{ops::Range, sync::atomic::Ordering::SeqCst};

use transom_versions::{AtomicU64, Slot, layout};

use super::{GroupError, MEMBERS_MAX, mapping::Mapping};

/// First word: layout 2 of the area, for 64 members that write mirrors.
const AREA: u64 = u64::from_le_bytes(*b"TRANSOG2");

/// Mirrors in a group's lifetime.
pub(super) const MIRRORS_MAX: usize = 128;
const MIRROR_WORDS: usize = MIRRORS_MAX / 64;

const WORD_LEN: usize = size_of::<u64>();
const HEAD_WORDS: usize = 8;
const RECORD_WORDS: usize = 8;
/// Turns to change names: enough that threads seldom meet whose directories differ.
const TURNS: usize = 1024;
/// Beyond the members': hot files of daemons that are dead.
const ORPHANS: usize = MEMBERS_MAX;

/// The state of a record that nobody uses.
pub(super) const FREE: u64 = 0;
/// The state of the record of a member that has not signed off.
pub(super) const LIVE: u64 = 1;

/// The part behind the table.
#[derive(Debug, Clone)]
pub(super) struct Area {
    mapping: Mapping,
    /// Index of its first word.
    start: usize,
    slots: usize,
}

/// The words of a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum RecordWord {
    /// [`FREE`] or [`LIVE`].
    State = 0,
    /// The process, as its own namespace numbers it.
    Pid = 1,
    /// Number of hot files.
    HotFiles = 2,
    /// Inode of the pid namespace that numbers the process so, or 0 if it is not known.
    PidNamespace = 3,
    /// 1 if the member stamps the host's own changes, or waits to take over from the one that does.
    HostWatch = 4,
    /// Number of the mirror of its guest and 1, or 0.
    Mirror = 5,
    /// Number of the mirror that the member has reserved and 1, or 0. Nobody has had it while `Mirror` is 0.
    Reserved = 6,
}

impl Area {
    /// Returns the area behind a table with that many slots, which fits the mapping.
    pub(super) fn new(mapping: Mapping, slots: u64) -> Self {
        Self { mapping, start: start(slots), slots: slots as usize }
    }

    /// Returns the length of a file whose table has that many slots.
    pub(super) fn file_len_bytes(slots: u64) -> usize {
        let heat = (MEMBERS_MAX + 1) * slots as usize;
        (start(slots) + HEAD_WORDS + MEMBERS_MAX * RECORD_WORDS + TURNS + heat) * WORD_LEN
    }

    /// Returns where the counts of a member are, in a file whose table has that many slots.
    pub(super) fn heat_bytes(slots: u64, member: usize) -> Range<usize> {
        let begin = start(slots) + HEAD_WORDS + MEMBERS_MAX * RECORD_WORDS + TURNS + member * slots as usize;
        begin * WORD_LEN..(begin + slots as usize) * WORD_LEN
    }

    /// Returns where the counts of daemons that are dead are.
    pub(super) fn orphans_bytes(slots: u64) -> Range<usize> {
        Self::heat_bytes(slots, ORPHANS)
    }

    /// Returns the length of the longest file.
    pub(super) fn len_max() -> usize {
        Self::file_len_bytes(1 << layout::SLOTS_LOG2_MAX)
    }

    /// Writes the first word.
    pub(super) fn format(&self) {
        self.word(0).store(AREA, SeqCst);
    }

    /// Checks the first word.
    pub(super) fn check(mapping: &Mapping, slots: u64) -> Result<(), GroupError> {
        let found = mapping.as_ref()[start(slots)].load(SeqCst);
        if found == AREA { Ok(()) } else { Err(GroupError::Area { found }) }
    }

    /// Returns device and inode of the shared directory.
    pub(super) fn root(&self) -> (u64, u64) {
        (self.word(1).load(SeqCst), self.word(2).load(SeqCst))
    }

    pub(super) fn set_root(&self, (dev, ino): (u64, u64)) {
        self.word(1).store(dev, SeqCst);
        self.word(2).store(ino, SeqCst);
    }

    /// Returns which mirrors guests use, 64 to a word.
    #[inline]
    pub(super) fn mirrors_used(&self, word: usize) -> &AtomicU64 {
        self.word(3 + word % MIRROR_WORDS)
    }

    /// Returns which mirrors guests have ever used.
    pub(super) fn mirrors_spent(&self, word: usize) -> &AtomicU64 {
        self.word(3 + MIRROR_WORDS + word % MIRROR_WORDS)
    }

    /// Returns the byte whose lock a daemon holds while it joins.
    pub(super) fn join_byte(&self) -> u64 {
        (self.start * WORD_LEN) as u64
    }

    /// Returns the byte whose lock the member holds that stamps the host's own changes.
    pub(super) fn host_watch_byte(&self) -> u64 {
        self.join_byte() + 1
    }

    /// Returns the byte whose lock the member holds for as long as it lives.
    pub(super) fn record_byte(&self, index: usize) -> u64 {
        ((self.start + HEAD_WORDS + index * RECORD_WORDS) * WORD_LEN) as u64
    }

    pub(super) fn record(&self, index: usize, word: RecordWord) -> &AtomicU64 {
        self.word(HEAD_WORDS + index * RECORD_WORDS + word as usize)
    }

    /// Returns whether the record says that its member has not signed off.
    pub(super) fn is_live(&self, index: usize) -> bool {
        self.record(index, RecordWord::State).load(SeqCst) == LIVE
    }

    /// Returns the turn for a directory's slot.
    pub(super) fn turn(&self, number: usize) -> &AtomicU64 {
        self.word(HEAD_WORDS + MEMBERS_MAX * RECORD_WORDS + number % TURNS)
    }

    /// Returns the number of the turn for a directory.
    pub(super) fn turn_of(directory: Slot) -> usize {
        directory.number() as usize % TURNS
    }

    /// Returns all turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = &AtomicU64> {
        (0..TURNS).map(|number| self.turn(number))
    }

    /// Returns the number of files of a member that make a slot hot.
    pub(super) fn heat(&self, member: usize, slot: usize) -> &AtomicU64 {
        self.word(HEAD_WORDS + MEMBERS_MAX * RECORD_WORDS + TURNS + member * self.slots + slot)
    }

    /// Returns the number of orphaned files that make a slot hot.
    pub(super) fn orphans(&self, slot: usize) -> &AtomicU64 {
        self.heat(ORPHANS, slot)
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.mapping.as_ref()[self.start + index]
    }
}

fn start(slots: u64) -> usize {
    layout::len_bytes(slots.ilog2()) / WORD_LEN
}
