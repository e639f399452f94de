//! Bounds what is logged: a guest that provokes a message with each request must not fill the host's disk.
//!
//! [`Bounded`] stands before the writer of a log. Messages that were asked for in detail, debug and trace, always pass.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;

/// Messages that pass in a row; a daemon says some dozens of them in its life.
const BURST: f64 = 200.0;

/// Messages a second that pass in the long run: some ten GiB a year at the worst.
const PER_SECOND: f64 = 1.0;

/// A log that leaves messages out when there are too many, and says how many.
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
            // A log that cannot be written to is nothing that could be logged.
            let _ = writeln!(self.log.make_writer_for(meta), "{omitted} messages were left out: there were too many");
        }
        OptionalWriter::some(self.log.make_writer_for(meta))
    }
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, counted_at: now, omitted: 0 }
    }

    /// Takes a message in: how many were left out before it, or `None` where it is left out too.
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
