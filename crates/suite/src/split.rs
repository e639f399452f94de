//! The list of file-system cases, each split between two mounts: one acts, the other looks.
//!
//! Mounts that cache nothing must show what was done at once, others before the subject's patience ends.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use transom_conformance::report;

use crate::{Verdict, cases, interrupt, judge, mounted::Mounted, places::Places, scenario::Scenario};

/// Mounts a directory twice, runs the list, and compares with the list on the bare directory.
pub(crate) fn run(scenario: &Scenario, mounted: &Mounted, places: &Places<'_>) -> anyhow::Result<Verdict> {
    let oracle = cases::oracle(places)?;
    let share = places.fresh("share")?;
    let mut command = Command::new(places.executable("transom-cases")?);
    command.args(["--limit", cases::LIMIT_S]);
    if scenario.options.contains(&"--cache=never") {
        command.arg("--strict");
    }
    let output = mounted.at(&share, |acting| {
        mounted.at(&share, |looking| {
            command.arg("--dir").arg(acting).arg("--looking-dir").arg(looking).stdin(Stdio::null());
            Ok(interrupt::run(&mut command)?.stdout)
        })
    })?;
    places.keep(&scenario.name(), &output)?;
    let found = report::parse(&String::from_utf8_lossy(&output)).context("the results of two mounts")?;
    Ok(judge::judge(oracle, &found, &judge::allowed(scenario)?))
}
