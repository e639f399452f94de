//! The subcommands that compare daemons, from their options to a report.

use std::{env, path::PathBuf};

use clap::Args;
use transom_bench::{
    daemon::Candidate,
    limits,
    process::Placement,
    report::{Facts, Report, Sample, Version, markdown},
    round_trip::{self, Operation},
};
use transom_vm::CacheMode;

/// What every comparison has.
#[derive(Args)]
pub(crate) struct Common {
    /// A daemon with virtiofsd's command line; the first one is compared with each other one.
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]", required = true)]
    daemons: Vec<Candidate>,
    /// Where the directory that is shared is made.
    #[arg(long, default_value = "/dev/shm")]
    shared_in: PathBuf,
    /// Rounds over all daemons.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Write NAME.json and NAME.md there.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// The name of both files.
    #[arg(long)]
    name: Option<String>,
}

#[derive(Args)]
pub(crate) struct RoundTrip {
    #[command(flatten)]
    common: Common,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::SameCore, Placement::OtherCore])]
    placement: Vec<Placement>,
    /// Requests under way at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    depth: Vec<u16>,
    /// What is asked.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::ALL)]
    operations: Vec<Operation>,
    /// Requests in a burst, against the usual number.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The daemons' cache mode.
    #[arg(long, default_value = "auto")]
    cache: CacheMode,
}

impl RoundTrip {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let plan = round_trip::Plan {
            candidates: self.common.daemons.clone(),
            placements: self.placement,
            depths: self.depth,
            operations: self.operations,
            rounds: self.common.rounds,
            scale: self.scale,
            cache: self.cache,
        };
        let samples = round_trip::measure(&plan, &self.common.shared_in)?;
        self.common.report("Round trips without a guest", "round-trip", None, samples)
    }
}

impl Common {
    /// Adds limits and facts, writes the files, prints the table.
    fn report(
        self,
        title: &str,
        name: &str,
        guest_kernel: Option<String>,
        samples: Vec<Sample>,
    ) -> anyhow::Result<()> {
        let daemons = self.daemons.iter().map(|candidate| Version {
            name: candidate.name.clone(),
            version: candidate.version(),
            args: candidate.args.clone(),
        });
        let limits_dir = tempfile::tempdir_in(&self.shared_in)?;
        let report = Report {
            title: title.to_owned(),
            command: env::args().collect(),
            facts: Facts::collect(guest_kernel, &self.shared_in.display().to_string()),
            daemons: daemons.collect(),
            limits: limits::measure(limits_dir.path())?,
            samples,
        };
        report.write(&self.out, self.name.as_deref().unwrap_or(name))?;
        print!("{}", markdown(&report));
        Ok(())
    }
}
