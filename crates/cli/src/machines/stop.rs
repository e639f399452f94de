//! `transom stop`: the end of a machine that stays.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use transom_vm::{
    Result,
    keep::{Machine, State, machines},
};

use crate::{
    run::values::parse_seconds,
    tell::{printable, tell},
};

/// End machines that `transom run --keep` has started
///
/// Ends the commands in the machine (SIGTERM, after three seconds SIGKILL), writes back what they have written,
/// unmounts the shares and ends the machine. What has changed in overlays is kept and told. Returns when the machine
/// has ended.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The machines
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,

    /// End all machines of this user
    #[arg(long)]
    all: bool,

    /// Do not wait for the guest: what its programs have not written yet is lost
    #[arg(long)]
    force: bool,

    /// How long to wait for the end of each machine; it goes on after that
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "120")]
    timeout: Duration,
}

/// Returns the name of a machine that has not ended. Tells of one that has.
fn to_stop((name, state): (String, State)) -> Option<String> {
    match state {
        State::Ended(error) => {
            tell(error);
            None
        }
        State::Starting | State::Running(_) => Some(name),
    }
}

impl Stop {
    pub(crate) fn execute(self) -> ExitCode {
        let names = match self.all {
            true => machines().map(|machines| machines.into_iter().filter_map(to_stop).collect()),
            false => Ok(self.names.clone()),
        };
        let failed = |error: transom_vm::Error| {
            tell(error);
            true
        };
        let any_failed = match names {
            Err(error) => failed(error),
            Ok(names) => {
                let stop = |name: &String| self.stop(name).is_err_and(failed);
                // All are stopped, whatever becomes of one.
                names.iter().filter(|name| stop(name)).count() > 0
            }
        };
        if any_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn stop(&self, name: &str) -> Result<()> {
        eprint!("{}", printable(&Machine::connect(name)?.stop(self.force, self.timeout)?));
        Ok(())
    }
}
