//! Deadlock detection: a request that would close a cycle of waiting owners is refused with EDEADLK, as in POSIX.
//!
//! An owner waits for all other owners with a conflicting lock in the [`record`](super::record) at that moment. The
//! locks of the host's processes and of other daemons' guests are unknown here, so cycles through them are not
//! detected.
//!
//! FUSE does not distinguish a process's locks from those of an open file description. Linux does not detect cycles of
//! the latter, since any other user of the description may end its wait. An owner with more than one pid is certainly
//! a description.

use rustix::io::Errno;
use transom_wire::ids::LockOwner;

use super::{Wanted, record::Record};

/// All requests that wait for a POSIX lock. Bounded by [`super::waiters::WAITERS_MAX`], apart from those about to be
/// refused.
#[derive(Debug, Default)]
pub(super) struct Waits {
    next_id: u64,
    waiting: Vec<Wait>,
}

#[derive(Debug)]
struct Wait {
    id: u64,
    wanted: Wanted,
}

impl Waits {
    /// Records that the owner of `wanted` begins to wait; returns a number for [`Waits::end`].
    ///
    /// # Errors
    ///
    /// EDEADLK if an owner that it would wait for waits for it, directly or through others.
    pub(super) fn begin(&mut self, wanted: &Wanted, record: &Record) -> Result<u64, Errno> {
        if self.closes_circle(wanted, record) {
            return Err(Errno::DEADLK);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push(Wait { id, wanted: *wanted });
        Ok(id)
    }

    /// Removes a wait.
    pub(super) fn end(&mut self, id: u64) {
        self.waiting.retain(|wait| wait.id != id);
    }

    fn closes_circle(&self, wanted: &Wanted, record: &Record) -> bool {
        if self.waiting.is_empty() || record.is_description(wanted) {
            return false;
        }
        // Owners that `wanted` would wait for. Grows by the owners that those wait for in turn; the number of waiting
        // owners is bounded.
        let mut reached: Vec<LockOwner> = record.in_the_way(wanted).collect();
        let mut at = 0;
        while let Some(&owner) = reached.get(at) {
            for wait in self.waiting.iter().filter(|wait| wait.wanted.owner == owner) {
                if record.is_description(&wait.wanted) {
                    continue;
                }
                for next in record.in_the_way(&wait.wanted) {
                    if next == wanted.owner {
                        return true;
                    }
                    // An owner that does not wait leads nowhere.
                    if !reached.contains(&next) && self.waiting.iter().any(|wait| wait.wanted.owner == next) {
                        reached.push(next);
                    }
                }
            }
            at += 1;
        }
        false
    }
}
