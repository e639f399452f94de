//! The list of file-system cases in a guest, against the same list on the bare directory.

use std::process::Command;

use anyhow::Context as _;
use transom_conformance::report::{self, Report, Status};

use crate::{
    Verdict,
    guest::Machine,
    job::Job,
    judge, overlay,
    places::Places,
    scenario::{Guest, Scenario},
};

/// The bound on a case, which an emulated guest on a busy machine needs more of than the bare directory.
pub(crate) const LIMIT_S: &str = "300";

/// Runs the list in the guest and compares.
pub(crate) fn run(scenario: &Scenario, machine: &Machine, places: &Places<'_>) -> anyhow::Result<Verdict> {
    let oracle = match scenario.guest {
        Guest::UmlOverlay(_) => oracle_on_overlayfs(places)?,
        _ => oracle(places)?,
    };
    let program = places.executable("transom-cases")?;
    let share = places.fresh("share")?;
    let tools = places.tools(&[&program])?;
    let command = ["/tools/transom-cases", "--limit", LIMIT_S, "--dir", "/share"];
    let output = machine.run(&share, &tools, &command)?;
    places.keep(&scenario.name(), &output)?;
    let found = report::parse(&String::from_utf8_lossy(&output)).context("the guest's results")?;
    Ok(judge::judge(oracle, &found, &judge::allowed(scenario)?))
}

/// The results on overlayfs of this host, where some cases fail.
fn oracle_on_overlayfs<'p>(places: &'p Places<'_>) -> anyhow::Result<&'p [Report]> {
    places.overlay_oracle(Job::Cases, || {
        let output =
            overlay::on_host(&places.fresh("overlayfs")?, &places.executable("transom-cases")?, &[])?.output()?;
        places.keep("oracle-overlayfs", &output.stdout)?;
        let reports = report::parse(&String::from_utf8_lossy(&output.stdout));
        reports.with_context(|| format!("overlayfs: {}", String::from_utf8_lossy(&output.stderr)))
    })
}

/// The results on the bare directory.
pub(crate) fn oracle<'p>(places: &'p Places<'_>) -> anyhow::Result<&'p [Report]> {
    places.cases_oracle(|| {
        let dir = places.fresh("oracle")?;
        let output = Command::new(places.executable("transom-cases")?).arg("--dir").arg(&dir).output()?;
        places.keep("oracle", &output.stdout)?;
        let reports = report::parse(&String::from_utf8_lossy(&output.stdout)).context("the oracle's results")?;
        if let Some(bad) = reports.iter().find(|report| report.status == Status::Fail) {
            anyhow::bail!("the bare directory fails a case: {bad}");
        }
        Ok(reports)
    })
}
