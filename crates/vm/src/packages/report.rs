//! [`Report`]: progress of fetching and building.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicU32, Ordering},
};

/// Receives progress.
pub trait Report: Sync {
    /// Starts the step described by `line`.
    fn say(&self, line: &str);

    /// Reports how much of the step is done.
    fn advance(&self, percent: f32);
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
        let percent = percent.clamp(0.0, 100.0) as u32;
        if stderr().is_terminal() && self.shown.swap(percent + 1, Ordering::Relaxed) != percent + 1 {
            let _ = write!(stderr(), "\r{percent:3} %");
        }
    }
}
