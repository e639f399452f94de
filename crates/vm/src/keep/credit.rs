//! [`Credit`]: how much of a stream its sender may have on the way.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::frame::{DATA_MAX, HEADER_LEN, WINDOW};

/// The smallest frame that is worth sending, with its header.
const LEAST: usize = 1 << 10;

/// Credit of one stream: spent by its sender, given back when the receiver has passed the bytes on.
#[derive(Debug)]
pub(crate) struct Credit {
    /// `None` once nobody wants the stream any more.
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Credit {
    pub(crate) fn new() -> Self {
        Self { left: Mutex::new(Some(WINDOW)), changed: Condvar::new() }
    }

    /// Waits until a frame may be sent, and returns how many bytes it may hold, or `None` if nobody wants the stream
    /// any more.
    pub(crate) fn wait(&self) -> Option<usize> {
        let mut left = self.lock();
        while left.is_some_and(|left| left < LEAST) {
            left = self.changed.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        left.map(|left| (left - HEADER_LEN).min(DATA_MAX))
    }

    /// Takes the length of a frame, which was allowed by [`wait`](Self::wait).
    pub(crate) fn spend(&self, len: usize) {
        if let Some(left) = &mut *self.lock() {
            *left = left.saturating_sub(len);
        }
    }

    /// Adds the bytes that the receiver has passed on to the credit again.
    pub(crate) fn give(&self, len: usize) {
        if let Some(left) = &mut *self.lock() {
            *left = (*left + len).min(WINDOW);
        }
        self.changed.notify_all();
    }

    /// Ends the stream: nobody wants it any more.
    pub(crate) fn close(&self) {
        *self.lock() = None;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn a_sender_waits_when_the_window_is_full_and_goes_on_when_some_is_given_back() {
        let credit = Arc::new(Credit::new());
        let mut sent = 0;
        while sent + LEAST <= WINDOW {
            let len = credit.wait().unwrap() + HEADER_LEN;
            credit.spend(len);
            sent += len;
        }
        assert!(sent <= WINDOW);
        let waiting = thread::spawn({
            let credit = Arc::clone(&credit);
            move || credit.wait()
        });
        credit.give(2 * LEAST);
        assert!(waiting.join().unwrap().is_some_and(|room| room > 0 && room < 2 * LEAST));
    }

    #[test]
    fn nobody_waits_for_a_stream_that_is_closed() {
        let credit = Credit::new();
        credit.spend(WINDOW);
        credit.close();
        assert_eq!(credit.wait(), None);
        credit.give(WINDOW);
        assert_eq!(credit.wait(), None);
    }
}
