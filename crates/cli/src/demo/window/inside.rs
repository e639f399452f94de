//! The guests' part of the demonstration of a window; what it finds goes to standard output as JSON.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{FILE, FILE_LEN, HOST, SHARED, Shared, WITH, WITHOUT, tree};

/// The subcommand's name.
pub(super) const NAME: &str = "demo-inside";
const PAGE: usize = 4096;

/// What `transom demo` runs in its guests.
#[derive(Debug, Args)]
pub(crate) struct DemoInside {
    /// The guest's number
    party: usize,
}

/// What a guest found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Findings {
    /// One of the guests reads.
    pub(super) reading: Option<Reading>,
}

/// The same file, read twice.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reading {
    pub(super) with_window: Pass,
    pub(super) without: Pass,
}

/// One reading of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pass {
    /// The time of the calls.
    pub(super) time: Duration,
    /// Bytes.
    pub(super) cached_growth: u64,
    /// Of all bytes, in their order.
    pub(super) sum: String,
}

impl DemoInside {
    /// Does the guest's part.
    pub(crate) fn execute(self) -> ExitCode {
        match self.findings().and_then(|findings| Ok(serde_json::to_writer(std::io::stdout(), &findings)?)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "{error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn findings(&self) -> Result<Findings> {
        let is_reader = self.party == HOST + 1;
        let reading =
            if is_reader { Some(Reading { without: read(WITHOUT)?, with_window: read(WITH)? }) } else { None };
        Shared::open(&Path::new(WITH).join(SHARED))?.take_part(self.party, || false)?;
        Ok(Findings { reading })
    }
}

/// Reads every page of the file once, in an order that nobody can read ahead of.
fn read(folder: &str) -> Result<Pass> {
    let file = File::open(Path::new(folder).join(FILE))?;
    let mut content = vec![0; FILE_LEN];
    // The memory is there before the clock runs.
    content.fill(1);
    let cached_before = cached()?;
    let begun = Instant::now();
    let pages = FILE_LEN / PAGE;
    for number in 0..pages {
        // A prime number of pages apart.
        let at = number * 3001 % pages * PAGE;
        file.read_exact_at(&mut content[at..at + PAGE], at as u64)?;
    }
    let time = begun.elapsed();
    let cached_growth = cached()?.saturating_sub(cached_before);
    Ok(Pass { time, cached_growth, sum: tree::checksum(&content) })
}

/// Bytes of the page cache.
fn cached() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:")).context("no page cache in /proc/meminfo")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
