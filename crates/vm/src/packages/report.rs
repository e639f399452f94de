//! [`Report`]: progress of fetching and building. [`Transfer`] says how much of a download is left.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Receives progress.
pub trait Report: Sync {
    /// Starts the step described by `line`.
    fn say(&self, line: &str);

    /// Reports how much of the step is done.
    fn advance(&self, percent: f32);

    /// Reports how much of a download is done; `remaining` has the bytes and the time left.
    fn advance_transfer(&self, percent: f32, remaining: &str) {
        let _ = remaining;
        self.advance(percent);
    }
}

/// Discards progress.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

/// Prints lines to standard error, and percentages if it is a terminal.
#[derive(Debug, Default)]
pub struct OnStderr {
    /// The percentage shown plus one, or 0 if none is shown.
    shown: AtomicU32,
}

impl Report for Quiet {
    fn say(&self, _line: &str) {}

    fn advance(&self, _percent: f32) {}
}

impl Report for OnStderr {
    fn say(&self, line: &str) {
        let clear = if self.shown.swap(0, Ordering::Relaxed) > 0 { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{line}");
    }

    fn advance(&self, percent: f32) {
        self.advance_transfer(percent, "");
    }

    fn advance_transfer(&self, percent: f32, remaining: &str) {
        let percent = percent.clamp(0.0, 100.0) as u32;
        if stderr().is_terminal() && self.shown.swap(percent + 1, Ordering::Relaxed) != percent + 1 {
            let _ = write!(stderr(), "\r\x1b[K{percent:3} %{remaining}");
        }
    }
}

impl OnStderr {
    /// Removes the percentage, if one is shown.
    pub fn clear(&self) {
        if self.shown.swap(0, Ordering::Relaxed) > 0 {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// A download of a known size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    total_bytes: u64,
    begun: Instant,
}

impl Transfer {
    /// Starts a download of `total_bytes` now.
    pub(super) fn begin(total_bytes: u64) -> Self {
        Self { total_bytes, begun: Instant::now() }
    }

    /// Returns the bytes of all, and the time left: `, 12.5 of 50.0 MiB, 30 s left`.
    pub(super) fn remaining(&self, percent: f32) -> String {
        remaining(self.total_bytes, self.begun.elapsed(), percent)
    }
}

/// Formats a transfer that has taken `elapsed` for `percent` of its bytes. The first percent says too little to tell
/// the time left.
fn remaining(total_bytes: u64, elapsed: Duration, percent: f32) -> String {
    let done = f64::from(percent.clamp(0.0, 100.0)) / 100.0;
    let mib = total_bytes as f64 / f64::from(1 << 20);
    let bytes = format!(", {:.1} of {mib:.1} MiB", mib * done);
    if done < 0.01 {
        return bytes;
    }
    let seconds = (elapsed.as_secs_f64() * (1.0 - done) / done).ceil();
    if seconds < 60.0 {
        format!("{bytes}, {seconds:.0} s left")
    } else {
        format!("{bytes}, {:.0} min left", (seconds / 60.0).ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_time_left_follow_from_the_percentage() {
        let after = |seconds, percent| remaining(50 << 20, Duration::from_secs(seconds), percent);
        assert_eq!(after(10, 25.0), ", 12.5 of 50.0 MiB, 30 s left");
        assert_eq!(after(100, 25.0), ", 12.5 of 50.0 MiB, 5 min left");
        assert_eq!(after(10, 0.0), ", 0.0 of 50.0 MiB");
        assert_eq!(after(10, 100.0), ", 50.0 of 50.0 MiB, 0 s left");
    }
}
