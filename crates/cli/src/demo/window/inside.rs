//! The part of the DAX demonstration that runs in the guests; prints its results to standard output as JSON.

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

/// Run by `transom demo` in its guests
#[derive(Debug, Args)]
pub(crate) struct DemoInside {
    /// The index of this guest among the parties
    party: usize,
}

/// The results of a guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Findings {
    /// Present for the one guest that reads.
    pub(super) reading: Option<Reading>,
}

/// The same file, read with and without the window.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reading {
    pub(super) with_window: Pass,
    pub(super) without: Pass,
}

/// One pass over the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pass {
    /// Time spent in the calls.
    pub(super) time: Duration,
    /// Growth of the guest's page cache, in bytes.
    pub(super) cached_growth: u64,
    /// Checksum of the contents.
    pub(super) sum: String,
}

impl DemoInside {
    /// Runs the guest's part.
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

/// Reads every page of the file once, in an order that defeats read-ahead.
fn read(folder: &str) -> Result<Pass> {
    let file = File::open(Path::new(folder).join(FILE))?;
    let mut content = vec![0; FILE_LEN];
    // Allocates the memory before the time is taken.
    content.fill(1);
    let cached_before = cached()?;
    let begun = Instant::now();
    let pages = FILE_LEN / PAGE;
    for number in 0..pages {
        // Steps by a prime number of pages.
        let at = number * 3001 % pages * PAGE;
        file.read_exact_at(&mut content[at..at + PAGE], at as u64)?;
    }
    let time = begun.elapsed();
    let cached_growth = cached()?.saturating_sub(cached_before);
    Ok(Pass { time, cached_growth, sum: tree::checksum(&content) })
}

/// Returns the size of the page cache in bytes.
fn cached() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("Cached:")).context("/proc/meminfo has no `Cached:` line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
