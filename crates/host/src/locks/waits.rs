//! Who waits for whom: a request that would close a circle of waiting owners is refused (EDEADLK), as by POSIX.
//!
//! An owner waits for all other owners with a lock in its way, as the [`record`](super::record) has them at that moment.
//! What processes of the host hold, or guests of other daemons, is not known here, and circles through them are not seen.
//!
//! FUSE does not tell a process's locks from those of an open file description, of which Linux sees no circles, since
//! whoever else has the description may end its wait. An owner with more than one pid is a description for certain.

use rustix::io::Errno;
use transom_wire::ids::LockOwner;

use super::{Wanted, record::Record};

/// All requests that wait for a POSIX lock. Bounded by [`super::waiters::WAITERS_MAX`], except for those about to be refused.
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
    /// Notes that the owner of `wanted` begins to wait; the number returned is for [`Waits::end`].
    ///
    /// Errors: EDEADLK where someone whom it would wait for waits for it, directly or through others.
    pub(super) fn begin(&mut self, wanted: &Wanted, record: &Record) -> Result<u64, Errno> {
        if self.closes_circle(wanted, record) {
            return Err(Errno::DEADLK);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push(Wait { id, wanted: *wanted });
        Ok(id)
    }

    /// Forgets a wait.
    pub(super) fn end(&mut self, id: u64) {
        self.waiting.retain(|wait| wait.id != id);
    }

    fn closes_circle(&self, wanted: &Wanted, record: &Record) -> bool {
        if self.waiting.is_empty() || record.is_description(wanted) {
            return false;
        }
        // Owners that `wanted` would wait for. Grows by owners that wait themselves, of which there is a bound, and by
        // those whom these wait for.
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
                    // Who does not wait leads nowhere.
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
