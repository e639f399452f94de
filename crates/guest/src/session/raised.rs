//! What replies tell of the slots of the version table that the guest's own requests have raised.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use transom_versions::Raised;
use transom_wire::own_changes::{self, COUNT_MAX, LEN_MAX};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The slots that the requests of one operation have raised, for [`Caller::raised`](super::Caller::raised).
///
/// What has no room, or comes in a trailer that cannot be one, is left out: the guest then takes its own change for
/// another's. So it does if two threads note something at the same time, which those of one operation never do.
#[derive(Debug, Default)]
pub struct RaisedSlots {
    is_busy: AtomicBool,
    /// Read and written while `is_busy` was set by this thread.
    slots: [Words; COUNT_MAX],
}

/// How a slot was raised; a word of 0 stands for none.
#[derive(Debug, Default)]
struct Words {
    slot: AtomicU32,
    previous: AtomicU64,
    word: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct List {
    slots: [Option<(u32, Raised)>; COUNT_MAX],
}

/// The body of a reply, and room for the trailer after it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WithTrailer<T> {
    pub(super) body: T,
    trailer: [u8; LEN_MAX],
}

impl<T> WithTrailer<T> {
    /// Returns what was written after the body of a reply with `body_len` bytes after its header; `None` if it is
    /// shorter than the body.
    pub(super) fn trailer(&self, body_len: usize) -> Option<&[u8]> {
        self.trailer.get(..body_len.checked_sub(size_of::<T>())?)
    }
}

impl RaisedSlots {
    /// Notes what a reply says.
    pub(super) fn note(&self, trailer: &[u8]) {
        let Some(changes) = own_changes::parse(trailer) else { return };
        self.with_list(|list| {
            for change in changes {
                list.add(change.slot.get(), Raised { previous: change.previous.get(), word: change.new.get() });
            }
        });
    }

    /// Calls `each` with every raise of a slot.
    pub(crate) fn each_of(&self, slot: u32, each: impl FnMut(Raised)) {
        let mut found = List::default();
        self.with_list(|list| found = *list);
        found.slots.into_iter().flatten().filter(|(of, _)| *of == slot).map(|(_, raised)| raised).for_each(each);
    }

    fn with_list(&self, act: impl FnOnce(&mut List)) {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let mut list = List { slots: self.slots.each_ref().map(Words::load) };
        act(&mut list);
        for (words, raised) in self.slots.iter().zip(list.slots) {
            words.store(raised);
        }
        self.is_busy.store(false, Ordering::Release);
    }
}

impl Words {
    fn load(&self) -> Option<(u32, Raised)> {
        let (previous, word) = (self.previous.load(Ordering::Relaxed), self.word.load(Ordering::Relaxed));
        (word != 0).then(|| (self.slot.load(Ordering::Relaxed), Raised { previous, word }))
    }

    fn store(&self, raised: Option<(u32, Raised)>) {
        let (slot, Raised { previous, word }) = raised.unwrap_or((0, Raised { previous: 0, word: 0 }));
        self.slot.store(slot, Ordering::Relaxed);
        self.previous.store(previous, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
    }
}

impl List {
    /// Adds a raise, to the one before it if it follows it without a gap: a long write is many requests.
    fn add(&mut self, slot: u32, raised: Raised) {
        if !raised.is_own_change() {
            return;
        }
        let last = self.slots.iter_mut().flatten().rev().find(|(of, _)| *of == slot);
        if let Some((_, last)) = last.filter(|(_, last)| last.word == raised.previous) {
            last.word = raised.word;
        } else if let Some(free) = self.slots.iter_mut().find(|place| place.is_none()) {
            *free = Some((slot, raised));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use transom_wire::own_changes::Trailer;

    use super::*;

    fn noted(trailers: &[&[(u32, u64, u64)]]) -> RaisedSlots {
        let raised = RaisedSlots::default();
        for changes in trailers {
            let mut trailer = Trailer::default();
            changes.iter().for_each(|&(slot, previous, new)| trailer.push(slot, previous, new));
            raised.note(trailer.as_bytes());
        }
        raised
    }

    fn of(raised: &RaisedSlots, slot: u32) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        raised.each_of(slot, |raised| found.push((raised.previous, raised.word)));
        found
    }

    #[test]
    fn raises_of_one_slot_that_follow_each_other_are_one() {
        let raised = noted(&[&[(1, 5, 6), (2, 3, 6)], &[(1, 6, 7)], &[(2, 5, 8)]]);
        assert_eq!(of(&raised, 1), [(5, 7)]);
        assert_eq!(of(&raised, 2), [(3, 6), (5, 8)], "the gap stays");
        assert_eq!(of(&raised, 3), []);
    }

    #[test]
    fn any_number_of_them_takes_the_same_room() {
        let raised = noted(&[&[(1, 0, 1)]]);
        for round in 0..1000 {
            let mut trailer = Trailer::default();
            trailer.push(1, round + 1, round + 2);
            trailer.push(2, 2 * round, 2 * round + 1);
            raised.note(trailer.as_bytes());
        }
        assert_eq!(of(&raised, 1), [(0, 1001)]);
        assert_eq!(of(&raised, 2).len(), COUNT_MAX - 1);
    }

    #[test]
    fn a_trailer_that_cannot_be_one_changes_nothing() {
        let raised = noted(&[&[(1, 5, 6)]]);
        let mut trailer = Trailer::default();
        trailer.push(1, 6, 7);
        let bytes = trailer.as_bytes();
        for bad in [&[][..], &bytes[1..], &bytes[..bytes.len() - 1], &[0xff; LEN_MAX], &[0; LEN_MAX]] {
            raised.note(bad);
        }
        assert_eq!(of(&raised, 1), [(5, 6)]);
    }
}
