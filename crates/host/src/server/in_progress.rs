//! Counts the requests in progress, on cache lines that few threads share.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::stripe;

/// More than the request queues of a typical device, so that workers seldom share a counter.
const STRIPE_COUNT: usize = 16;

/// The number of requests in progress.
#[derive(Default)]
pub(super) struct InProgress([Stripe; STRIPE_COUNT]);

/// Aligned so that two stripes share neither a cache line nor a pair that the processor fetches together.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicUsize);

/// One counted request, until [`Counted::end`].
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl InProgress {
    /// Counts one more request. Sequentially consistent, as is [`InProgress::is_zero`].
    pub(super) fn begin(&self) -> Counted<'_> {
        let Stripe(count) = &self.0[stripe::of_this_thread(STRIPE_COUNT)];
        count.fetch_add(1, SeqCst);
        Counted(count)
    }

    /// Returns whether every request that began before the call has ended.
    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|Stripe(count)| count.load(SeqCst) == 0)
    }
}

impl Counted<'_> {
    /// Counts one request less.
    pub(super) fn end(&self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
