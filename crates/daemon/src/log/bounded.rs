//! Bounds the rate of messages: a guest that provokes one with each request must not fill the host's disk.
//!
//! [`Bounded`] wraps the writer of a log. Debug and trace messages, which have to be enabled explicitly, always pass.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;

/// Messages that may pass in a row; a daemon writes a few dozen in its lifetime.
const BURST: f64 = 200.0;

/// Messages per second that may pass in the long run: about ten GiB a year at worst.
const PER_SECOND: f64 = 1.0;

/// A log writer that omits messages when there are too many, and reports the number omitted.
pub(super) struct Bounded<W> {
    log: W,
    allowance: Mutex<Allowance>,
}

/// How many messages may still pass.
struct Allowance {
    left: f64,
    counted_at: Instant,
    omitted: u64,
}

impl<W> Bounded<W> {
    pub(super) fn new(log: W) -> Self {
        Self { log, allowance: Mutex::new(Allowance::new(Instant::now())) }
    }
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Bounded<W> {
    type Writer = OptionalWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OptionalWriter::some(self.log.make_writer())
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Self::Writer {
        if *meta.level() > Level::INFO {
            return OptionalWriter::some(self.log.make_writer_for(meta));
        }
        let admitted = self.allowance.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
        let Some(omitted) = admitted else { return OptionalWriter::none() };
        if omitted > 0 {
            // If the log cannot be written to, that cannot be logged either.
            let _ = writeln!(self.log.make_writer_for(meta), "{omitted} messages omitted: too many");
        }
        OptionalWriter::some(self.log.make_writer_for(meta))
    }
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, counted_at: now, omitted: 0 }
    }

    /// Counts a message. Returns the number omitted before it, or `None` if it is omitted too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let since = now.saturating_duration_since(self.counted_at).as_secs_f64();
        self.left = (self.left + since * PER_SECOND).min(BURST);
        self.counted_at = now;
        if self.left < 1.0 {
            self.omitted += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_what_follows_is_counted() {
        let begun_at = Instant::now();
        let mut allowance = Allowance::new(begun_at);
        let passed = (0..1000).filter(|_| allowance.admit(begun_at).is_some()).count();
        assert_eq!(passed, 200);
        assert_eq!(allowance.admit(begun_at + Duration::from_secs(2)), Some(800));
        assert_eq!(allowance.admit(begun_at + Duration::from_secs(2)), Some(0));
        assert_eq!(allowance.admit(begun_at + Duration::from_secs(2)), None);
        let much_later = begun_at + Duration::from_secs(100_000);
        assert_eq!(allowance.admit(much_later), Some(1));
        assert_eq!((0..1000).filter(|_| allowance.admit(much_later).is_some()).count(), 199);
    }
}
