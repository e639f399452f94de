//! Jobs on storage that is memory: a guest with an NVDIMM, a file system with DAX on it, and inside that guest
//! `transomd`, with this program as *its* guest.
//!
//! [`nvdimm`] creates the NVDIMM's file, [`machine`] is the guest that has it, and [`setting`] is the common set-up
//! inside it. [`crashes`] is the host's side of the proof that flushed data survives a crash, and [`stores`] is the
//! guest's side. [`refusals`] checks what must fail, and [`faults`] measures latencies.

mod copies;
mod crashes;
mod faults;
mod histogram;
mod machine;
mod nvdimm;
mod refusals;
mod setting;
mod stores;

use std::{fs, path::PathBuf};

use transom_vm::packages::{Cache, OnStderr, Packages};

use crate::{
    Verdict,
    guest::Virtual,
    job::{FileSystem, Job},
    places::Places,
    scenario::Scenario,
};

/// Runs the job of `scenario`. Errors: it failed.
pub(crate) fn run(scenario: &Scenario, machine: &Virtual, places: &Places<'_>) -> anyhow::Result<Verdict> {
    match scenario.job {
        Job::Crashes { on, crashes } => crashes::run(machine, places, on, crashes),
        Job::SyncFaults { on } => faults::run(&scenario.name(), machine, places, on),
        _ => anyhow::bail!("not a job on an NVDIMM"),
    }
}

/// Returns a share with what the guest needs, and the file of an NVDIMM, or the verdict if they are unavailable.
fn storage(places: &Places<'_>, on: FileSystem) -> anyhow::Result<Result<(PathBuf, PathBuf), Verdict>> {
    let share = places.fresh("share")?;
    fs::copy(places.executable("transomd")?, share.join("transomd"))?;
    let file = places.fresh("nvdimm")?.join("file");
    let made = places.fetch(|| {
        let cache = Cache::locate()?;
        nvdimm::create(&file, on, &Packages::new(&cache, &OnStderr::default()))
    });
    Ok(match made {
        Ok(()) => Ok((share, file)),
        Err(reason) => Err(Verdict::skipped(&format!("no {} on an NVDIMM: {reason:#}", on.name()))),
    })
}

/// Does the guest's part of a job.
pub(crate) fn inside(words: &[&str]) -> anyhow::Result<()> {
    match *words {
        ["stores", file_system, round, way, seed] => stores::inside(file_system, round.parse()?, way, seed.parse()?),
        ["verify", file_system, round] => {
            stores::verify_last(file_system, round.parse()?)?;
            refusals::without_dax(file_system)
        }
        ["faults", file_system] => faults::inside(file_system),
        _ => anyhow::bail!("no such program: {words:?}"),
    }
}
