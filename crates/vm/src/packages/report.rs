//! Saying what is being fetched or built, and how far it is.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::{AtomicU32, Ordering},
};

/// Who hears of the progress.
pub trait Report: Sync {
    /// A step begins; `line` says which, for a person to read.
    fn say(&self, line: &str);

    /// So much of the step is done, in percent.
    fn advance(&self, percent: f32);
}

/// Nobody.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

/// Lines on standard error; on a terminal with percentages.
#[derive(Debug, Default)]
pub struct OnStderr {
    /// The last percentage shown, more by one; 0 when none is on the line.
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
