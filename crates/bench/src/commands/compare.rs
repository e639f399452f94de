//! `transom bench compare`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use crate::report::{Report, versus};

/// Exit status if something got slower.
const SLOWER: u8 = 1;
/// Exit status if a file cannot be read.
const TROUBLE: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0; 1 if something is below --fail-below; 2 if a file does not contain results.")]
pub(super) struct Compare {
    /// The result file from before: NAME.json.
    before: PathBuf,
    /// The result file from after.
    after: PathBuf,
    /// Only this daemon; may be repeated [default: all that are in both files]
    #[arg(long = "daemon", value_name = "NAME")]
    daemons: Vec<String>,
    /// Exit with status 1 if the whole interval of any ratio is below this value, for example 0.9
    #[arg(long, value_name = "RATIO")]
    fail_below: Option<f64>,
}

impl Compare {
    pub(super) fn execute(self) -> ExitCode {
        match self.run() {
            Ok(status) => status,
            Err(error) => {
                eprintln!("transom bench compare: {error:#}");
                ExitCode::from(TROUBLE)
            }
        }
    }

    fn run(&self) -> anyhow::Result<ExitCode> {
        let (before, after) = (Report::read(&self.before)?, Report::read(&self.after)?);
        let mut changes = versus::changes(&before, &after);
        if !self.daemons.is_empty() {
            changes.retain(|change| change.daemon == crate::report::HOST || self.daemons.contains(&change.daemon));
        }
        print!("{}", versus::table(&before, &after, &changes));
        let Some(limit) = self.fail_below else { return Ok(ExitCode::SUCCESS) };
        let slower: Vec<_> = versus::below(&changes, limit).collect();
        for change in &slower {
            println!("below {limit}: {} by {} ({})", change.workload, change.daemon, change.scenario);
        }
        Ok(if slower.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SLOWER) })
    }
}
