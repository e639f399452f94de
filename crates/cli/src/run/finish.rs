//! The end of a run: what is told, written as JSON and committed, and the exit status.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use serde_json::{Value, json};
use transom_vm::{Error, Result, RunOutcome, Timings, network::Refused};

use super::{
    Run, network,
    overlays::{Outcome, Overlays},
    report,
};
use crate::{overlay::changes_json, tell::tell, usage::RUN_FAILED};

/// Exit statuses of `timeout` and `docker run` for their own failures, as opposed to the command's.
const TIMED_OUT: u8 = 124;
const FAILED: u8 = RUN_FAILED;

/// What to do at the end.
#[derive(Debug)]
pub(super) struct Finish {
    shows_timings: bool,
    commits_on_success: bool,
    json: Option<PathBuf>,
}

impl Finish {
    pub(super) fn new(run: &Run) -> Self {
        Self { shows_timings: run.timing, commits_on_success: run.commit_on_success, json: run.json.clone() }
    }

    pub(super) fn shows_timings(&self) -> bool {
        self.shows_timings
    }

    /// Tells how the run ended, what the network refused, and what became of its overlays.
    pub(super) fn report(self, result: Result<RunOutcome>, overlays: Overlays, refused: &[Refused]) -> ExitCode {
        let status = self.tell(&result);
        network::report(refused);
        let outcomes = overlays.finish(self.commits_on_success && status == 0);
        let is_commit_refused = self.commits_on_success && status == 0 && outcomes.iter().any(|o| o.error.is_some());
        let status = if is_commit_refused { FAILED } else { status };
        if let Some(path) = &self.json
            && let Err(error) = write(path, &object(status, &result, &outcomes, refused))
        {
            eprintln!("transom: cannot write {}: {error}", path.display());
            return ExitCode::from(FAILED);
        }
        ExitCode::from(status)
    }

    fn tell(&self, result: &Result<RunOutcome>) -> u8 {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => {
                tell(error);
                return match error {
                    Error::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(FAILED),
                    Error::TimedOut(_) => TIMED_OUT,
                    _ => FAILED,
                };
            }
        };
        for warning in &outcome.warnings {
            tell(warning);
        }
        outcome.dax.iter().for_each(report::dax);
        if self.shows_timings {
            outcome.notes.iter().for_each(tell);
            report::timings(&outcome.timings);
        }
        u8::try_from(outcome.exit_code).unwrap_or(FAILED)
    }
}

fn object(status: u8, result: &Result<RunOutcome>, overlays: &[Outcome], refused: &[Refused]) -> Value {
    let (seconds, warnings) = match result {
        Ok(outcome) => (phases(&outcome.timings), outcome.warnings.clone()),
        Err(_) => (Value::Null, Vec::new()),
    };
    let overlay = |outcome: &Outcome| {
        let mut changes = changes_json(&outcome.directory, &outcome.changes);
        changes["guest"] = json!(outcome.guest.to_string_lossy());
        changes["committed"] = json!(outcome.is_committed);
        changes["error"] = json!(outcome.error);
        changes
    };
    json!({
        "status": status,
        "error": result.as_ref().err().map(ToString::to_string),
        "warnings": warnings,
        "seconds": seconds,
        "resources": resources(),
        "network_refused": network::refused_json(refused),
        "overlays": overlays.iter().map(overlay).collect::<Vec<_>>(),
    })
}

fn phases(timings: &Timings) -> Value {
    let seconds = |time: Duration| time.as_secs_f64();
    json!({
        "prepare": seconds(timings.prepare),
        "boot": seconds(timings.boot),
        "to_command": seconds(timings.to_command()),
        "command": seconds(timings.run),
        "stop": seconds(timings.stop),
    })
}

/// Returns what the processes that this one has started, and that have ended, have used.
fn resources() -> Value {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Value::Null };
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    json!({
        "user_seconds": seconds(usage.user_time()),
        "system_seconds": seconds(usage.system_time()),
        // The kernel counts in KiB.
        "greatest_process_bytes": usage.max_rss() * 1024,
    })
}

fn write(path: &Path, object: &Value) -> io::Result<()> {
    let line = format!("{object}\n");
    if path == Path::new("-") { io::stdout().write_all(line.as_bytes()) } else { fs::write(path, line) }
}
