//! Entries that directory streams have read ahead, kept between requests for a bounded number of streams.
//!
//! A guest may have as many streams open as it may have files, and 32 KiB for each would be gigabytes. So the batches
//! belong not to the streams but to [`SLOT_COUNT`] slots, at most 8 MiB in all; a stream that stores its batch evicts
//! the slot's previous one. Streams that are read at the same time rarely share a slot, since slots are assigned in
//! turn. Locks: one for each slot, for a lookup or a change.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::dir_batch::Batch;

/// More directories than even a parallel tree walk reads at the same time.
const SLOT_COUNT: usize = 256;

/// The batches of streams that are not being read.
#[derive(Debug)]
pub(super) struct ReadAhead {
    slots: Box<[Mutex<Slot>]>,
    next_stream: AtomicU64,
}

/// Identifies a stream for the lifetime of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamId(u64);

/// One stream's batch.
type Slot = Option<(StreamId, Batch)>;

impl ReadAhead {
    /// Returns an identifier for a new stream.
    pub(super) fn new_stream(&self) -> StreamId {
        StreamId(self.next_stream.fetch_add(1, Relaxed))
    }

    /// Removes and returns what `stream` has read ahead, if it is still there.
    pub(super) fn take(&self, stream: StreamId) -> Option<Batch> {
        let taken = self.slot(stream).take_if(|(owner, _)| *owner == stream);
        taken.map(|(_, batch)| batch)
    }

    /// Keeps what `stream` has read ahead until another stream needs the slot.
    pub(super) fn keep(&self, stream: StreamId, batch: Batch) {
        // The evicted batch is freed after unlocking.
        let _pushed_out = self.slot(stream).replace((stream, batch));
    }

    /// Returns the number of kept batches.
    #[cfg(test)]
    pub(super) fn kept_count(&self) -> usize {
        self.slots.iter().filter(|slot| lock(slot).is_some()).count()
    }

    fn slot(&self, stream: StreamId) -> MutexGuard<'_, Slot> {
        lock(&self.slots[(stream.0 % SLOT_COUNT as u64) as usize])
    }
}

impl Default for ReadAhead {
    fn default() -> Self {
        let slots = (0..SLOT_COUNT).map(|_| Mutex::default()).collect();
        Self { slots, next_stream: AtomicU64::new(0) }
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_beyond_the_slots_push_each_other_out_and_never_take_what_is_not_theirs() {
        let read_ahead = ReadAhead::default();
        let streams: Vec<StreamId> = (0..SLOT_COUNT + 1).map(|_| read_ahead.new_stream()).collect();
        streams.iter().for_each(|&stream| read_ahead.keep(stream, Batch::default()));
        assert_eq!(read_ahead.kept_count(), SLOT_COUNT);
        assert!(read_ahead.take(streams[0]).is_none(), "the last one has its slot");
        assert!(streams[1..].iter().all(|&stream| read_ahead.take(stream).is_some()));
        assert_eq!(read_ahead.kept_count(), 0);
    }
}
