//! `transom bench smoke`: runs everything once at minimal size, so that the benchmark keeps working.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use transom_vm::{
    CacheMode,
    packages::{Cache, OnStderr, Packages},
};

use super::{command_line, measure::GuestName};
use crate::{
    daemon::{Candidate, Wanted},
    guests, library, limits, memory, polling,
    process::Placement,
    report::{Facts, Report, SCHEMA, Sample, Version, html, markdown},
    round_trip,
    workload::{self, Group, Params, line::Line, place::Forget},
};

#[derive(Debug, Args)]
pub(super) struct Smoke {
    /// The daemons to try.
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]")]
    daemons: Vec<Wanted>,
    /// The guests to try.
    #[arg(long = "guest", value_enum, value_delimiter = ',', default_values_t = [GuestName::User, GuestName::Uml])]
    guests: Vec<GuestName>,
}

/// Few enough to take a second, and more than the directories need.
const INODES: u32 = 300;
const MEMORY_MIB: u32 = 256;
const WINDOW_LEN: u64 = 16 << 20;

impl Smoke {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let parent = dir.path();
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let packages = Packages::new(&cache, &report);
        let daemons: Vec<_> =
            self.daemons.iter().map(|wanted| wanted.find(&packages)).collect::<anyhow::Result<_>>()?;

        let params = Params::smoke();
        workload::make_many(parent, &params, &AtomicBool::new(false))?;
        let mut out = Vec::new();
        workload::run_in_directory(parent, &params, Forget::Nothing, &mut out)?;
        let lines: Vec<Line> =
            out.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let results = lines.iter().filter(|line| matches!(line, Line::Result(_))).count();
        let refused: Vec<_> = lines.iter().filter(|line| matches!(line, Line::Refused { .. })).collect();
        ensure!(results + refused.len() == params.workload_count(), "{results} results, refused: {refused:?}");
        println!("ok: {results} workloads in a directory, {} refused", refused.len());
        println!("ok: {} limits", limits::measure(parent)?.len());

        if daemons.is_empty() {
            println!("SKIPPED: daemons: no daemon was given");
            return Ok(());
        }
        round_trips(&daemons, parent)?;
        library(&daemons, parent)?;
        inodes(&daemons, parent)?;
        polling(&daemons[0], parent)?;
        let samples = self.guests(&daemons, parent)?;
        let refused = samples.iter().filter(|sample| sample.measure.is_none()).count();
        let report = report_of(&daemons, samples);
        let lines = markdown(&report).lines().count();
        println!("ok: a report of {lines} lines, a page of {} bytes, {refused} workloads refused", html(&report).len());
        Ok(())
    }

    fn guests(&self, daemons: &[Candidate], parent: &Path) -> anyhow::Result<Vec<Sample>> {
        let find = |guest: &GuestName| guest.find(None, None, MEMORY_MIB, false);
        let params = Params::smoke();
        let with_window = daemons.iter().take(1).map(|first| {
            let name = "DAX".to_owned();
            Candidate { name, window_len: Some(WINDOW_LEN), ..first.clone() }
        });
        let plan = guests::Plan {
            candidates: with_window.chain(daemons.iter().cloned()).collect(),
            guests: self.guests.iter().map(find).collect::<anyhow::Result<_>>()?,
            caches: vec![CacheMode::Auto],
            rounds: 1,
            parts: vec![params.clone(), Params { groups: vec![Group::Guests], ..params }],
        };
        let measured = guests::measure(&plan, parent, &Arc::default())?;
        ensure!(measured.failures.is_empty(), "{}", measured.failures.join("\n"));
        measured.notes.iter().for_each(|note| println!("{note}"));
        println!("ok: {} workloads in guests and beside them", measured.samples.len());
        Ok(measured.samples)
    }
}

fn round_trips(daemons: &[Candidate], parent: &Path) -> anyhow::Result<()> {
    let plan = round_trip::Plan {
        candidates: daemons.to_vec(),
        placements: vec![Placement::SameCore],
        depths: vec![1, 4],
        operations: round_trip::Operation::value_variants().to_vec(),
        rounds: 1,
        scale: 0.01,
        cache: CacheMode::Auto,
    };
    println!("ok: {} bursts of requests without a guest", round_trip::measure(&plan, parent)?.len());
    Ok(())
}

fn library(daemons: &[Candidate], parent: &Path) -> anyhow::Result<()> {
    let plan = library::Plan {
        candidates: daemons.to_vec(),
        placements: vec![Placement::SameCore],
        threads: vec![1, 2],
        operations: library::Operation::value_variants().to_vec(),
        rounds: 1,
        scale: 0.01,
        cache: CacheMode::Auto,
    };
    println!("ok: {} bursts of the guest library", library::measure(&plan, parent)?.len());
    Ok(())
}

fn polling(daemon: &Candidate, parent: &Path) -> anyhow::Result<()> {
    let plan = polling::Plan {
        daemon: daemon.clone(),
        settings: vec![None, Some(0)],
        scenes: polling::Scene::value_variants().to_vec(),
        rounds: 1,
        time: Duration::from_millis(20),
    };
    println!("ok: {} samples of polling", polling::measure(&plan, parent)?.len());
    Ok(())
}

fn inodes(daemons: &[Candidate], parent: &Path) -> anyhow::Result<()> {
    let shared = tempfile::tempdir_in(parent)?;
    memory::populate(shared.path(), INODES)?;
    for candidate in daemons {
        let sample = memory::measure(candidate, shared.path(), INODES, 0)?;
        ensure!(sample.refusal.is_none(), "{}: {:?}", sample.daemon, sample.refusal);
    }
    println!("ok: memory after {INODES} inodes, {} daemons", daemons.len());
    Ok(())
}

fn report_of(daemons: &[Candidate], samples: Vec<Sample>) -> Report {
    Report {
        schema: SCHEMA,
        title: "Smoke".into(),
        command: command_line(),
        facts: Facts::collect(None, &std::env::temp_dir()),
        daemons: daemons.iter().map(Version::of).collect(),
        limits: Vec::new(),
        notes: Vec::new(),
        samples,
    }
}
