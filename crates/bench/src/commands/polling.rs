//! `transom bench polling`.

use std::{fs, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use transom_vm::packages::{Cache, OnStderr, Packages};

use super::command_line;
use crate::{
    daemon::Wanted,
    polling::{self, Plan, PollingReport, Scene},
    report::Facts,
};

#[derive(Debug, Args)]
pub(super) struct Polling {
    /// The daemon, which has to know --poll-us.
    #[arg(long, value_name = "[NAME=]PROGRAM [ARGUMENT...]", default_value = "transomd")]
    daemon: Wanted,
    /// Values of --poll-us, beside the daemon's default.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 20, 400])]
    poll_us: Vec<u32>,
    /// What guests and host do [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    scenes: Vec<Scene>,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds that each sample takes; an idle share is watched for this long.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Where to create the shared directory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    shared_in: PathBuf,
    /// Directory for polling.json and polling.md.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
}

impl Polling {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let scenes = if self.scenes.is_empty() { Scene::value_variants().to_vec() } else { self.scenes };
        let plan = Plan {
            daemon: self.daemon.find(&Packages::new(&cache, &report))?,
            settings: std::iter::once(None).chain(self.poll_us.into_iter().map(Some)).collect(),
            scenes,
            rounds: self.rounds,
            time: Duration::try_from_secs_f64(self.seconds)?,
        };
        let samples = polling::measure(&plan, &self.shared_in)?;
        let report = PollingReport { command: command_line(), facts: Facts::collect(None, &self.shared_in), samples };
        fs::create_dir_all(&self.out)?;
        fs::write(self.out.join("polling.json"), serde_json::to_vec_pretty(&report)?)?;
        let text = polling::markdown(&report);
        fs::write(self.out.join("polling.md"), &text)?;
        print!("{text}");
        Ok(())
    }
}
