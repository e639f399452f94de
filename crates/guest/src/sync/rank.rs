//! The order of the library's locks, asserted in debug builds.
//!
//! docs/locks.md has the order and the reasons. Each lock is of a rank; a thread that holds one takes only what is
//! ranked behind it, and waits for nobody while it holds one that is for moments. Who only tries a lock cannot deadlock
//! and may hold anything. What a thread holds is kept by the platform ([`Platform::with_held`]); where that keeps
//! nothing, and in release builds, nothing is checked and nothing costs anything.

#![expect(unsafe_code, reason = "a raw lock that passes on to the platform's promises what that promises")]

use core::cell::Cell;

use lock_api::RawMutex;

use crate::Platform;

/// Who writes dirty pages of all inodes back.
pub(crate) const WRITE_BACKS: u8 = 0;
/// The size of one file.
pub(crate) const SIZE: u8 = 1;
/// Who maps a file.
pub(crate) const MAPPED: u8 = 2;
/// The ranges of one file.
pub(crate) const RANGES: u8 = 3;
/// The places of the window.
pub(crate) const POOL: u8 = 4;
/// What protects nothing but itself: tables, attributes, pages, lists.
pub(crate) const LEAF: u8 = 5;
/// Of a virtqueue.
pub(crate) const QUEUE: u8 = 6;
/// Of a device's memory, and whether it works.
pub(crate) const DEVICE: u8 = 7;

const RANKS: usize = 8;
/// From this rank on locks are held for moments.
const FIRST_SHORT: u8 = MAPPED;

/// What a thread holds: how many locks of each rank.
#[derive(Debug, Default)]
pub struct Held(Cell<[u8; RANKS]>);

impl Held {
    /// Nothing.
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

/// Says that the calling thread is about to wait for a lock of `rank`.
#[inline]
pub(super) fn wants<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| {
            let behind = held.has_from(rank);
            assert!(
                behind.is_none(),
                "a lock of rank {rank} is wanted by who holds one of rank {behind:?}: docs/locks.md"
            );
        });
    }
}

/// Says that it has it.
#[inline]
pub(super) fn took<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.change(rank, |count| count.saturating_add(1)));
    }
}

/// Says that it has it no longer.
#[inline]
pub(super) fn gave<P: Platform>(rank: u8) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.change(rank, |count| count.saturating_sub(1)));
    }
}

/// Says that the calling thread may wait for somebody: it holds no lock that is for moments.
#[inline]
pub(crate) fn may_wait<P: Platform>() {
    if cfg!(debug_assertions) {
        P::with_held(|held| {
            let short = held.has_from(FIRST_SHORT);
            assert!(short.is_none(), "a thread waits that holds a lock of rank {short:?}, for moments: docs/locks.md");
        });
    }
}

/// The platform's lock, of a rank.
pub(crate) struct Ranked<P: Platform, const RANK: u8>(P::RawMutex);

// SAFETY: all is passed on to the platform's lock, which is this one's alone and promises to exclude; what is counted
// beside excludes nobody.
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
        // SAFETY: as the caller promises, this lock is held, and so is that.
        unsafe { self.0.unlock() };
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}
