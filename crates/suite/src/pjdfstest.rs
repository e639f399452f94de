//! pjdfstest in a guest, against pjdfstest on the bare directory.

use std::{path::Path, process::Command};

use anyhow::Context as _;
use transom_conformance::{
    pjdfstest,
    report::{self, Report},
};
use transom_vm::packages::Cache;

use crate::{
    Verdict,
    guest::Machine,
    job::Job,
    judge, overlay,
    places::Places,
    scenario::{Guest, Scenario},
};

/// Runs the suite in the guest and compares.
pub(crate) fn run(scenario: &Scenario, machine: &Machine, places: &Places<'_>) -> anyhow::Result<Verdict> {
    let suite = places.fetch(|| pjdfstest::install(Cache::locate()?.dir()).context("building pjdfstest"))?;
    let oracle = match scenario.guest {
        Guest::UmlOverlay(_) => oracle_on_overlayfs(places, &suite)?,
        _ => oracle(places, &suite)?,
    };
    let share = places.fresh("share")?;
    let tools = places.tools(&[&places.executable("transom-cases")?, &suite])?;
    let command =
        ["/tools/transom-cases", "pjdfstest", "--executable", "/tools/pjdfstest", "--dir", "/share", "--add-users"];
    let output = machine.run(&share, &tools, &command)?;
    places.keep(&scenario.name(), &output)?;
    let found = report::parse(&String::from_utf8_lossy(&output)).context("the guest's results")?;
    Ok(judge::judge(oracle, &found, &judge::allowed(scenario)?))
}

/// The results on overlayfs of this host.
fn oracle_on_overlayfs<'p>(places: &'p Places<'_>, suite: &Path) -> anyhow::Result<&'p [Report]> {
    places.overlay_oracle(Job::Pjdfstest, || {
        let suite = suite.to_str().context("the path of pjdfstest")?;
        let words = ["pjdfstest", "--executable", suite];
        let output = overlay::on_host(&places.fresh("of")?, &places.executable("transom-cases")?, &words)?.output()?;
        places.keep("pjdfstest-oracle-overlayfs", &output.stdout)?;
        let reports = report::parse(&String::from_utf8_lossy(&output.stdout));
        reports.with_context(|| format!("overlayfs: {}", String::from_utf8_lossy(&output.stderr)))
    })
}

/// The results on the bare directory.
fn oracle<'p>(places: &'p Places<'_>, suite: &Path) -> anyhow::Result<&'p [Report]> {
    places.pjdfstest_oracle(|| {
        let dir = places.fresh("o")?;
        let mut command = Command::new(places.executable("transom-cases")?);
        command.args(["pjdfstest", "--executable"]).arg(suite).arg("--dir").arg(&dir);
        let output = command.output().context("running pjdfstest on the bare directory")?;
        places.keep("pjdfstest-oracle", &output.stdout)?;
        report::parse(&String::from_utf8_lossy(&output.stdout)).context("the bare directory's results")
    })
}
