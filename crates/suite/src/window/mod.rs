//! Jobs about the DAX window. Each file has both sides of one: the host's, and this program's when it runs in the
//! guest.

mod coherence;
mod deaths;
mod fresh_mappings;
mod lifetime;
mod one_copy;
mod working_set;

use std::{env, process::ExitCode};

use anyhow::Context as _;

use crate::{
    Verdict,
    guest::{INSIDE, Virtual},
    job::Job,
    places::Places,
    scenario::Scenario,
    soak,
};

/// Runs the job of `scenario`. Errors: it failed.
pub(crate) fn run(scenario: &Scenario, machine: &Virtual, places: &Places<'_>) -> anyhow::Result<Verdict> {
    let share = places.fresh("share")?;
    match scenario.job {
        Job::Coherence => coherence::run(machine, &share),
        Job::OneCopy => one_copy::run(machine, &share),
        Job::WorkingSet => {
            working_set::run(machine, &share, 4 * scenario.dax.context("a working set without a window")?.window_len)
        }
        Job::FreshMappings(reads) => {
            fresh_mappings::run(machine, &share, reads, !scenario.options.contains(&"--front-end=qemu-without-barrier"))
        }
        Job::Reboot => lifetime::run(machine, &share, "reboot"),
        Job::Rebind => lifetime::run(machine, &share, "rebind"),
        Job::DaemonKilled => deaths::daemon(machine, &share),
        Job::VmmKilled => deaths::vmm(machine, &share),
        Job::Cases
        | Job::SplitCases
        | Job::Stale { .. }
        | Job::Pjdfstest
        | Job::TwoCallers(_)
        | Job::Fsx(_)
        | Job::Crashes { .. }
        | Job::SyncFaults { .. }
        | Job::Foreign(_) => {
            anyhow::bail!("not a job of the window")
        }
    }
}

/// Does the guest's part of a job, if this process was started for that.
pub(crate) fn run_if_inside() -> Option<ExitCode> {
    let mut words = env::args().skip(1);
    if words.next().as_deref() != Some(INSIDE) {
        return None;
    }
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.first().is_some_and(|word| word.starts_with("soak-")) {
        return Some(soak::inside(&words));
    }
    Some(match inside(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

fn inside(words: &[&str]) -> anyhow::Result<()> {
    match *words {
        ["coherence", number] => coherence::inside(number.parse()?),
        ["one-copy"] => one_copy::inside(),
        ["working-set", len] => working_set::inside(len.parse()?),
        ["fresh-mappings", reads] => fresh_mappings::inside(reads.parse()?),
        ["reboot"] => lifetime::reboot(),
        ["rebind"] => lifetime::rebind(),
        ["beat"] => deaths::beat(),
        ["stores" | "verify" | "faults", ..] => crate::pmem::inside(words),
        _ => anyhow::bail!("no such program: {words:?}"),
    }
}
