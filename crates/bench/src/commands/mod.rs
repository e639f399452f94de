//! The subcommands that measure, from their options to a report; a file for each.

mod fio;
mod guest;
mod library;
mod memory;
mod round_trip;
mod smoke;

use std::{env, path::PathBuf};

use clap::Args;
use transom_bench::{
    daemon::Candidate,
    limits,
    report::{Facts, Report, Sample, Version, markdown},
};
use transom_vm::{
    packages::{Cache, OnStderr, Packages},
    peer,
};

pub(crate) use fio::Fio;
pub(crate) use guest::Guest;
pub(crate) use library::Library;
pub(crate) use memory::Memory;
pub(crate) use round_trip::RoundTrip;
pub(crate) use smoke::Smoke;

/// What every comparison has.
#[derive(Args)]
pub(crate) struct Common {
    /// A daemon with virtiofsd's command line; the first one is compared with each other one. By default transomd
    /// beside this program and virtiofsd 1.14, which is built if need be.
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]")]
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
    /// The name of both files; by default that of the subcommand.
    #[arg(long)]
    name: Option<String>,
}

impl Common {
    /// The daemons that were asked for, or the usual two.
    fn with_daemons(mut self) -> anyhow::Result<Self> {
        if self.daemons.is_empty() {
            let (cache, report) = (Cache::locate()?, OnStderr::default());
            let peer = peer::virtiofsd(&Packages::new(&cache, &report))?;
            self.daemons = vec![
                Candidate::named("transomd", &env::current_exe()?.with_file_name("transomd"))?,
                Candidate::named("virtiofsd", &peer)?,
            ];
        }
        Ok(self)
    }

    /// Adds limits and facts, writes the files, prints the table.
    fn report(self, title: &str, name: &str, guest_kernel: Option<String>, samples: Vec<Sample>) -> anyhow::Result<()> {
        let daemons = self.daemons.iter().map(|candidate| Version {
            name: candidate.name.clone(),
            version: candidate.version(),
            args: candidate.args.clone(),
        });
        let limits_dir = tempfile::tempdir_in(&self.shared_in)?;
        let report = Report {
            title: title.to_owned(),
            command: command_line(),
            facts: Facts::collect(guest_kernel, &self.shared_in),
            daemons: daemons.collect(),
            limits: limits::measure(limits_dir.path())?,
            samples,
        };
        report.write(&self.out, self.name.as_deref().unwrap_or(name))?;
        print!("{}", markdown(&report));
        Ok(())
    }
}

/// The words that started this program, without the folders of programs, which are of no use elsewhere.
fn command_line() -> Vec<String> {
    std::iter::once(env!("CARGO_PKG_NAME").to_owned())
        .chain(env::args().skip(1))
        .map(|word| {
            let short = |path: &str| match path.starts_with('/') {
                true => path.rsplit('/').next().unwrap_or(path).to_owned(),
                false => path.to_owned(),
            };
            match word.split_once(' ') {
                Some((program, args)) => match program.split_once('=') {
                    Some((name, program)) => format!("'{name}={} {args}'", short(program)),
                    None => format!("'{} {args}'", short(program)),
                },
                None => match word.split_once('=') {
                    Some((name, value)) => format!("{name}={}", short(value)),
                    None if word.contains('/') => short(&word),
                    None => word,
                },
            }
        })
        .collect()
}
