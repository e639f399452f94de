//! How threads wait for their replies.
//!
//! A waiter polls for a while, and whoever gets the ring's lock reaps for all. Then one becomes the leader, who alone
//! sleeps in [`Transport::wait`]; the others sleep on the events of their slots. A leader whose own reply has come
//! hands the role to a follower. A follower that leaves while nobody leads passes on the request to lead. A caller
//! that waits for a free slot leads only if started messages hold every slot: a call that returns its slot signals an
//! event, which would not end the leader's sleep. Locks: `sleepers` and the ring's lock are never held together, and
//! neither is held while a thread is woken or sleeps.

use alloc::vec::Vec;

use super::Queue;
use crate::{
    platform::{Event as _, Platform},
    sync::{
        atomic::{Ordering, spin_loop},
        rank,
    },
    transport::Transport,
};

/// A leader looks again after this long even without a notification: another queue may have ended the device, or an
/// interrupt be lost on its way. So does a driver, whose condition may change without any reply.
const LOOK_AGAIN_NS: u64 = 200_000_000;

/// Looks between two readings of the clock, which may cost as much as a few of them.
const LOOKS_PER_CLOCK: u32 = 32;

/// Who looks gives others its processor after so long: above what a request takes of a device that is awake, so that
/// replies are reaped by several and not one by one; below what whoever the reply waits for can lose by it.
const YIELD_EACH_NS: u64 = 20_000;

/// So often at most is the clock read in one poll: a platform's may stand still.
const CLOCKS_MAX: u32 = 1 << 16;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    /// For this slot, which the waiter holds, to be done.
    Slot(u16),
    /// For the started message in this slot to be done; another message may take the slot meanwhile.
    Started(u16),
    /// For any slot to be free.
    Room,
    /// For replies to started messages, on behalf of those who have wakers.
    Driver,
}

/// Who sleeps, and whether somebody leads. Protected by `Queue::sleepers`.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    is_led: bool,
    /// Followers, who sleep or are about to. Its length is bounded by the threads that wait.
    followers: Vec<Seat>,
}

impl Sleepers {
    /// Who is to lead next: one who waits for a reply, where there is one.
    fn next(&self) -> Option<Seat> {
        self.followers.iter().find(|&&seat| seat != Seat::Room).or(self.followers.first()).copied()
    }
}

impl<P: Platform, T: Transport + 'static> Queue<P, T> {
    /// Blocks until `is_over`, or until the device was released.
    pub(super) fn wait_until(&self, seat: Seat, is_over: &mut dyn FnMut() -> bool) {
        let mut is_over = || is_over() || self.health.is_released();
        rank::may_wait::<P>();
        if is_over() || self.poll(seat, &mut is_over) {
            return;
        }
        loop {
            if self.try_lead(seat) {
                let is_over = self.lead(seat, &mut is_over);
                self.stop_leading();
                if is_over {
                    return;
                }
                continue;
            }
            let again_ns = (seat == Seat::Driver).then(|| self.platform.now_ns().saturating_add(LOOK_AGAIN_NS));
            self.event(seat)
                .wait(&mut || is_over() || (!self.is_led.load(Ordering::Acquire) && self.may_lead(seat)), again_ns);
            if self.stop_following(seat, is_over()) {
                return;
            }
        }
    }

    /// Polls for a short time; returns whether the wait is over.
    fn poll(&self, seat: Seat, is_over: &mut dyn FnMut() -> bool) -> bool {
        let Some(budget_ns) = self.poller.begin() else { return false };
        let begin_ns = self.platform.now_ns();
        let end_ns = begin_ns.saturating_add(budget_ns);
        let mut yield_ns = begin_ns.saturating_add(YIELD_EACH_NS);
        let is_over = 'poll: {
            for _ in 0..CLOCKS_MAX {
                for _ in 0..LOOKS_PER_CLOCK {
                    if self.has_used() {
                        self.try_reap(seat);
                    }
                    if is_over() {
                        break 'poll true;
                    }
                    spin_loop();
                }
                let now_ns = self.platform.now_ns();
                if now_ns >= end_ns {
                    break;
                }
                if now_ns >= yield_ns {
                    self.platform.yield_now();
                    yield_ns = self.platform.now_ns().saturating_add(YIELD_EACH_NS);
                }
            }
            false
        };
        self.poller.end(is_over.then(|| self.platform.now_ns().saturating_sub(begin_ns)));
        is_over
    }

    fn may_lead(&self, seat: Seat) -> bool {
        seat != Seat::Room || self.has_only_started()
    }

    /// Makes the caller the leader, or a follower where there is a leader.
    fn try_lead(&self, seat: Seat) -> bool {
        let mut sleepers = self.sleepers.lock();
        if sleepers.is_led || !self.may_lead(seat) {
            sleepers.followers.push(seat);
            return false;
        }
        sleepers.is_led = true;
        self.is_led.store(true, Ordering::Release);
        true
    }

    /// Reaps and sleeps until it is over; returns whether it is, or the caller may no longer lead.
    fn lead(&self, seat: Seat, is_over: &mut dyn FnMut() -> bool) -> bool {
        let mut was_idle = false;
        let is_over = loop {
            if is_over() {
                break true;
            }
            // Before the look: what the device tells after it ends the wait, whichever queue's thread it wakes.
            let seen = self.transport.notifications(self.index);
            // What somebody reaped before this is marked as done under the same lock: either it is over now, or the
            // device tells of whatever comes.
            let has_come = self.ring.lock().arm();
            if has_come {
                self.reap(None);
                continue;
            }
            if is_over() {
                break true;
            }
            // After the look, see `claim`.
            if !self.may_lead(seat) {
                break false;
            }
            // A wait that ended with nothing may be one that does not block, and what the reply waits for a thread of
            // this processor.
            if was_idle {
                self.platform.yield_now();
            }
            self.counters.slept();
            let again_ns = self.platform.now_ns().saturating_add(LOOK_AGAIN_NS);
            let waited = self.transport.wait(self.index, seen, Some(again_ns));
            was_idle = !self.has_used();
            self.reap(None);
            if let Err(error) = waited {
                self.health.fail(error.into());
            }
        };
        {
            let mut ring = self.ring.lock();
            // Under the lock: a waker that is stored after this look is followed by a request for an interrupt.
            if self.watched.load(Ordering::Acquire) == 0 {
                ring.disarm();
            }
        }
        is_over
    }

    fn stop_leading(&self) {
        let next = {
            let mut sleepers = self.sleepers.lock();
            sleepers.is_led = false;
            self.is_led.store(false, Ordering::Release);
            sleepers.next()
        };
        self.wake(next);
    }

    /// Ends a follower's sleep; returns whether it leaves. One that leaves while nobody leads may have been the one
    /// whom the last leader woke, and wakes another in its stead.
    fn stop_following(&self, seat: Seat, is_over: bool) -> bool {
        let next = {
            let mut sleepers = self.sleepers.lock();
            if let Some(place) = sleepers.followers.iter().position(|&follower| follower == seat) {
                sleepers.followers.remove(place);
            }
            if is_over && !sleepers.is_led { sleepers.next() } else { None }
        };
        self.wake(next);
        is_over
    }

    fn wake(&self, seat: Option<Seat>) {
        if let Some(seat) = seat {
            self.event(seat).wake_all();
        }
    }

    fn event(&self, seat: Seat) -> &P::Event {
        match seat {
            Seat::Slot(slot) | Seat::Started(slot) => self.slots.get(slot).map_or(&self.room, |slot| &slot.event),
            Seat::Room | Seat::Driver => &self.room,
        }
    }
}
