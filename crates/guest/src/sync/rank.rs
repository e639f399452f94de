//! The order of the library's locks, asserted in debug builds.
//!
//! docs/locks.md has the order and the reasons. Each lock has a rank. A thread that holds a lock only takes locks of
//! later ranks, and does not wait for other threads while it holds a short-section lock. A thread that only tries a
//! lock cannot deadlock and may hold anything. The platform stores what a thread holds ([`Platform::with_held`]). If it
//! stores nothing, and in release builds, nothing is checked and there is no cost.

#![expect(unsafe_code, reason = "a raw lock that passes on to the platform's promises what that promises")]

use core::cell::Cell;

use lock_api::RawMutex;

use crate::Platform;

/// Write-back of dirty pages of all inodes.
pub(crate) const WRITE_BACKS: u8 = 0;
/// The size of one file.
pub(crate) const SIZE: u8 = 1;
/// The mappings of a file.
pub(crate) const MAPPED: u8 = 2;
/// The ranges of one file.
pub(crate) const RANGES: u8 = 3;
/// The slots of the window.
pub(crate) const POOL: u8 = 4;
/// Locks that guard only their own data: tables, attributes, pages, lists.
pub(crate) const LEAF: u8 = 5;
/// A virtqueue.
pub(crate) const QUEUE: u8 = 6;
/// A device's memory, and whether it works.
pub(crate) const DEVICE: u8 = 7;

const RANKS: usize = 8;
/// Locks of this rank and later ones are held for short sections.
const FIRST_SHORT: u8 = MAPPED;

/// The locks that a thread holds: a count for each rank.
#[derive(Debug, Default)]
pub struct Held(Cell<[u8; RANKS]>);

impl Held {
    /// No locks.
    pub const fn new() -> Self {
        Self(Cell::new([0; RANKS]))
    }

    fn has_from(&self, rank: u8) -> Option<usize> {
        let counts = self.0.get();
        (usize::from(rank)..RANKS).find(|&held| counts[held] > 0)
    }

    fn change(&self, rank: u8, change: impl FnOnce(u8) -> u8) {
        let mut counts = self.0.get();
        if let Some(count) = counts.get_mut(usize::from(rank)) {
            *count = change(*count);
        }
        self.0.set(counts);
    }
}

/// Checks that the calling thread may wait for a lock of `rank`.
#[inline]
pub(super) fn wants<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| {
            let behind = held.has_from(rank);
            assert!(
                behind.is_none(),
                "a lock of rank {rank} is requested by a thread that holds one of rank {behind:?}: docs/locks.md"
            );
        });
    }
}

/// Records that the calling thread has taken a lock of `rank`.
#[inline]
pub(super) fn took<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.change(rank, |count| count.saturating_add(1)));
    }
}

/// Records that the calling thread has released a lock of `rank`.
#[inline]
pub(super) fn gave<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.change(rank, |count| count.saturating_sub(1)));
    }
}

/// Checks that the calling thread may wait for another: it holds no short-section lock.
#[inline]
pub(crate) fn may_wait<P: Platform>() {
    if cfg!(debug_assertions) {
        P::with_held(|held| {
            let short = held.has_from(FIRST_SHORT);
            assert!(short.is_none(), "a thread waits that holds a lock of rank {short:?}, for moments: docs/locks.md");
        });
    }
}

/// The platform's lock with a rank.
pub(crate) struct Ranked<P: Platform, const RANK: u8>(P::RawMutex);

// SAFETY: every call is passed on to the platform's lock, which belongs to this one alone and guarantees exclusion; the
// counting beside it does not affect exclusion.
unsafe impl<P: Platform, const RANK: u8> RawMutex for Ranked<P, RANK> {
    const INIT: Self = Self(P::RawMutex::INIT);
    type GuardMarker = <P::RawMutex as RawMutex>::GuardMarker;

    #[inline]
    fn lock(&self) {
        wants::<P>(RANK);
        self.0.lock();
        took::<P>(RANK);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let is_taken = self.0.try_lock();
        if is_taken {
            took::<P>(RANK);
        }
        is_taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        gave::<P>(RANK);
        // SAFETY: the caller guarantees that this lock is held, so the inner lock is held too.
        unsafe { self.0.unlock() };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}
