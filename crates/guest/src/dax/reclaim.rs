//! Finding a slot in the window: a free one, or that of another range.
//!
//! The search for a victim first considers the ranges that a sequential reader has left, the latest first, so that a
//! scan cycles through its own slots. Then it samples a few others, and takes the least used one if it is used clearly
//! less than the range that needs a slot. The victim is not unmapped: the new mapping replaces it. If less than a fifth
//! of the window is free, ranges that nobody has used for about a second are unmapped, several with one request.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

use transom_wire::NodeId;

use super::{
    RANGE_LEN, Window,
    admission::{Admission, WORTH_MIN},
    window::{Pool, count},
};
use crate::{
    Platform,
    session::{Caller, Session},
    volume::Inode,
};

/// Number of slots that are sampled for a victim: the least used one of so small a sample is used little enough.
const SAMPLE: usize = 8;
/// One in this many single requests for parts that might deserve a slot looks for a victim.
const LOOK_EACH: u32 = 8;
/// Number of ranges that a mapping thread unmaps if the platform has no threads.
const INLINE_BATCH: usize = 4;
/// The part of the window to keep free: a fifth.
const FREE_PART: usize = 5;
/// A slot that belongs to the caller.
pub(super) struct FreeRange {
    pub(super) slot: u32,
    /// The node that is still mapped there, if any.
    pub(super) mapped: Option<NodeId>,
}

impl<P: Platform> Window<P> {
    /// Returns whether a small file of which nothing is mapped should be, although slots may be free: it was requested
    /// as often as a mapping costs, or saves as many requests now.
    pub(crate) fn pays_for(&self, node: NodeId, requests: u32, now_ns: u64) -> bool {
        self.admission.tick(now_ns);
        let pays = self.admission.ask(node, 0, requests) >= WORTH_MIN;
        if !pays {
            count(&self.tally.denied);
        }
        pays
    }

    /// Returns a slot for the range `index` of `inode`, for which there are `worth` requests now, and the range's
    /// initial count of uses.
    pub(super) fn take_range(
        self: &Arc<Self>,
        inode: &Arc<Inode<P>>,
        index: u64,
        worth: u32,
    ) -> Option<(FreeRange, u8)> {
        let free = self.take_free();
        if self.is_scarce() {
            let has_thread = self.wanted.ask();
            if !self.wanted.is_looking() {
                self.admission.tick(inode.now_ns());
            }
            if !has_thread {
                self.reclaim(inode.session(), INLINE_BATCH);
            }
        }
        if let Some(slot) = free {
            return Some((FreeRange { slot, mapped: None }, Admission::credit(worth)));
        }
        let asked = if worth == u32::MAX { worth } else { self.admission.ask(inode.nodeid(), index, worth) };
        let place = if self.is_worth_a_look(asked, worth) {
            self.take_left().or_else(|| self.take_least_used(asked))
        } else {
            None
        };
        count(if place.is_some() { &self.tally.replaced } else { &self.tally.denied });
        place.map(|place| (place, Admission::credit(asked)))
    }

    /// Returns whether to look for a victim. In a window that is used evenly no search finds one, so only one in a few
    /// single requests searches: a part that is requested more often than others gets its slot a few requests later.
    fn is_worth_a_look(&self, asked: u32, worth: u32) -> bool {
        if !Admission::deserves(asked, 0) {
            return false;
        }
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
        worth > 1 || looks % LOOK_EACH == 0
    }

    /// Records that a sequential reader has passed the range at `slot`.
    pub(crate) fn leave(&self, slot: u32) {
        if self.slot(slot).heat.leave() {
            let mut pool = self.pool.lock();
            if pool.left.len() >= self.ranges() {
                let Pool { left, .. } = &mut *pool;
                left.retain(|&slot| self.slot(slot).heat.is_left());
            }
            pool.left.push(slot);
        }
    }

    fn take_left(&self) -> Option<FreeRange> {
        for _ in 0..SAMPLE {
            let slot = self.pool.lock().left.pop()?;
            if self.slot(slot).heat.is_left() {
                self.slot(slot).heat.begin(self.admission.epoch(), 0);
                if let Some(place) = self.evict(slot) {
                    return Some(place);
                }
            }
        }
        None
    }

    fn take_least_used(&self, asked: u32) -> Option<FreeRange> {
        let epoch = self.admission.epoch();
        let mut pool = self.pool.lock();
        let mut sample: [(u32, u32); SAMPLE] = [(u32::MAX, 0); SAMPLE];
        for entry in &mut sample {
            let slot = pool.hand as u32;
            pool.hand = (pool.hand + 1) % self.ranges();
            *entry = (self.slot(slot).heat.get(epoch), slot);
        }
        drop(pool);
        sample.sort_unstable();
        let victims = sample.iter().filter(|(used, _)| Admission::deserves(asked, *used));
        victims.into_iter().find_map(|&(_, slot)| self.evict(slot))
    }

    /// Takes a slot from its owner, if nobody uses it.
    fn evict(&self, slot: u32) -> Option<FreeRange> {
        let pool = self.pool.lock();
        let owner = pool.owners[slot as usize].as_ref()?;
        let (weak, index) = (owner.inode.clone(), owner.index);
        drop(pool);
        let inode = weak.upgrade()?;
        let is_released = inode.ranges().is_some_and(|ranges| ranges.release(index, slot));
        is_released.then(|| FreeRange { slot, mapped: Some(inode.nodeid()) })
    }

    /// Unmaps what is mapped at `slots`, all of `node`.
    pub(super) fn unmap(&self, session: &Session<P>, node: NodeId, slots: &[u32]) {
        let offsets: Vec<_> = slots.iter().map(|&slot| u64::from(slot) * RANGE_LEN).collect();
        // An error only keeps pages on the server for longer: the next mapping replaces what is there.
        let _ = session.removemapping(&Caller::default(), node, &offsets, RANGE_LEN);
    }

    /// Unmaps up to `count_max` ranges that were not used recently, until a fifth is free. Returns their number.
    pub(super) fn reclaim(&self, session: &Session<P>, count_max: usize) -> usize {
        self.admission.tick(session.platform().now_ns());
        let epoch = self.admission.epoch();
        let mut taken: Vec<(NodeId, u32)> = Vec::new();
        for _ in 0..self.ranges() {
            let mut pool = self.pool.lock();
            let wanted = self.ranges().div_ceil(FREE_PART).saturating_sub(self.free_count()).min(count_max);
            if taken.len() >= wanted {
                break;
            }
            let slot = pool.hand as u32;
            pool.hand = (pool.hand + 1) % self.ranges();
            let is_cold = pool.owners[slot as usize].is_some() && self.slot(slot).heat.is_idle(epoch);
            drop(pool);
            let evicted = if is_cold { self.evict(slot) } else { None };
            if let Some(FreeRange { slot, mapped: Some(node) }) = evicted {
                taken.push((node, slot));
            }
        }
        taken.sort_unstable();
        for of_node in taken.chunk_by(|(one, _), (other, _)| one == other) {
            let slots: Vec<_> = of_node.iter().map(|(_, slot)| *slot).collect();
            self.unmap(session, of_node[0].0, &slots);
            self.put_free(slots);
        }
        self.tally.reclaimed.fetch_add(taken.len() as u64, Ordering::Relaxed);
        taken.len()
    }

    /// Returns whether less than a fifth is free.
    pub(super) fn is_scarce(&self) -> bool {
        self.free_count() < self.ranges().div_ceil(FREE_PART)
    }
}
