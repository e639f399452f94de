//! `transom-bench smoke`: everything once, as small as can be, so that the benchmark never rots.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use transom_bench::{
    daemon::Candidate,
    guest, library, limits, memory,
    process::Placement,
    report::{Facts, Report, Sample, Version, markdown},
    round_trip::{self, Operation},
    workload::{self, Params, line::Line},
};
use transom_vm::CacheMode;

use super::{command_line, guest::VmmName};

#[derive(Args)]
pub(crate) struct Smoke {
    /// A daemon to try with requests without a guest, and in a guest if there is a kernel.
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]")]
    daemons: Vec<Candidate>,
    /// The virtual machine monitor.
    #[arg(long, value_enum, default_value_t = VmmName::Uml)]
    vmm: VmmName,
    /// The kernel image; by default one is fetched or built.
    #[arg(long)]
    kernel: Option<PathBuf>,
    /// No guest is tried.
    #[arg(long)]
    no_guest: bool,
}

/// Few enough for a second, more than one directory's worth of nothing.
const INODES: u32 = 300;

impl Smoke {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let parent = dir.path();
        let params = Params::smoke();

        let mut out = Vec::new();
        workload::run(parent.to_owned(), params.clone(), &mut out)?;
        let lines: Vec<Line> =
            out.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        let results = lines.iter().filter(|line| matches!(line, Line::Result(_))).count();
        let refused: Vec<_> = lines.iter().filter(|line| matches!(line, Line::Refused { .. })).collect();
        ensure!(results + refused.len() == params.workload_count(), "{results} results, refused: {refused:?}");
        println!("ok: {results} workloads in a directory, {} refused", refused.len());
        println!("ok: {} limits", limits::measure(parent)?.len());

        let mut samples = Vec::new();
        if !self.daemons.is_empty() {
            samples = self.round_trips(parent)?;
            samples.extend(self.library(parent)?);
            self.inodes(parent)?;
        }
        if self.daemons.is_empty() || self.no_guest {
            println!("SKIPPED: workloads in a guest: not asked for");
        } else {
            samples.extend(self.guests(params, parent)?);
        }
        let refused = samples.iter().filter(|sample| sample.measure.is_none()).count();
        let text = markdown(&self.report(samples));
        println!("ok: a report of {} lines, {refused} workloads refused", text.lines().count());
        Ok(())
    }

    fn round_trips(&self, parent: &Path) -> anyhow::Result<Vec<Sample>> {
        let plan = round_trip::Plan {
            candidates: self.daemons.clone(),
            placements: vec![Placement::SameCore],
            depths: vec![1, 4],
            operations: Operation::ALL.to_vec(),
            rounds: 1,
            scale: 0.01,
            cache: CacheMode::Auto,
        };
        let samples = round_trip::measure(&plan, parent)?;
        println!("ok: {} bursts of requests without a guest", samples.len());
        Ok(samples)
    }

    fn library(&self, parent: &Path) -> anyhow::Result<Vec<Sample>> {
        let plan = library::Plan {
            candidates: self.daemons.clone(),
            placements: vec![Placement::SameCore],
            threads: vec![1, 2],
            operations: library::Operation::ALL.to_vec(),
            rounds: 1,
            scale: 0.01,
            cache: CacheMode::Auto,
        };
        let samples = library::measure(&plan, parent)?;
        println!("ok: {} bursts of the guest library", samples.len());
        Ok(samples)
    }

    fn inodes(&self, parent: &Path) -> anyhow::Result<()> {
        let shared = tempfile::tempdir_in(parent)?;
        memory::populate(shared.path(), INODES)?;
        for candidate in &self.daemons {
            let sample = memory::measure(candidate, shared.path(), INODES, 0)?;
            ensure!(sample.refusal.is_none(), "{}: {:?}", sample.daemon, sample.refusal);
        }
        println!("ok: memory after {INODES} inodes, {} daemons", self.daemons.len());
        Ok(())
    }

    fn guests(&self, params: Params, parent: &Path) -> anyhow::Result<Vec<Sample>> {
        let (vmm, kernel) = self.vmm.find(self.kernel.as_deref(), false)?;
        let plan = guest::Plan {
            candidates: self.daemons.clone(),
            placements: vec![Placement::SameCore],
            caches: vec![CacheMode::Auto],
            rounds: 1,
            params,
            kernel,
            memory_mib: 256,
        };
        let samples = guest::measure(&plan, vmm.as_ref(), parent)?;
        println!("ok: {} workloads in guests and beside them", samples.len());
        Ok(samples)
    }

    fn report(&self, samples: Vec<Sample>) -> Report {
        let daemons = self.daemons.iter().map(|candidate| Version {
            name: candidate.name.clone(),
            version: candidate.version(),
            args: candidate.args.clone(),
        });
        Report {
            title: "Smoke".into(),
            command: command_line(),
            facts: Facts::collect(None, &std::env::temp_dir()),
            daemons: daemons.collect(),
            limits: Vec::new(),
            samples,
        }
    }
}
