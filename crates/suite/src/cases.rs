//! The list of file-system cases in a guest, against the same list on the bare directory.

use std::process::Command;

use anyhow::Context as _;
use transom_testkit::{
    compare::{self, Allowed},
    report::{self, Report, Status},
};

use crate::{Verdict, guest::Machine, places::Places, scenario::Scenario};

/// What a Linux guest's own driver makes different, whatever the daemon.
const ALLOWED: &str = include_str!("../../testkit/data/linux-guest.allow");

/// Runs the list in the guest and compares.
pub(crate) fn run(scenario: &Scenario, machine: &Machine, places: &Places) -> anyhow::Result<Verdict> {
    let allowed = compare::parse_allowed(ALLOWED)?;
    let oracle = oracle(places)?;
    let program = places.executable("transom-cases")?;
    let share = places.fresh("share")?;
    let tools = places.tools(&[&program])?;
    let output = machine.run(&share, &tools, &["/tools/transom-cases", "--dir", "/share"])?;
    places.keep(&scenario.name(), &output.stdout)?;
    let found = report::parse(&String::from_utf8_lossy(&output.stdout)).context("the guest's results")?;
    Ok(judge(oracle, &found, &allowed))
}

/// The results on the bare directory; run once.
fn oracle(places: &Places) -> anyhow::Result<&[Report]> {
    if let Some(oracle) = places.oracle.get() {
        return Ok(oracle);
    }
    let dir = places.fresh("oracle")?;
    let output = Command::new(places.executable("transom-cases")?).arg("--dir").arg(&dir).output()?;
    places.keep("oracle", &output.stdout)?;
    let reports = report::parse(&String::from_utf8_lossy(&output.stdout)).context("the oracle's results")?;
    if let Some(bad) = reports.iter().find(|report| report.status == Status::Fail) {
        anyhow::bail!("the bare directory fails a case: {bad}");
    }
    Ok(places.oracle.get_or_init(|| reports))
}

fn judge(oracle: &[Report], found: &[Report], allowed: &[Allowed]) -> Verdict {
    let differences = compare::differences(oracle, found, allowed, false);
    let mut verdict = Verdict::default();
    for report in found {
        let differs = differences.iter().any(|d| d.case == report.name && d.allowed.is_none());
        match report.status {
            _ if differs => verdict.failed += 1,
            Status::Skipped => verdict.skipped += 1,
            Status::Pass | Status::Fail => verdict.passed += 1,
        }
    }
    for difference in &differences {
        let compare::Difference { case, what, expected, found, allowed } = difference;
        match allowed {
            None => verdict.remarks.push(format!("    {case}: {what}: expected {expected}, found {found}")),
            Some(reason) => verdict.remarks.push(format!("    (known) {case}: {what}: {reason}")),
        }
    }
    let is_missing = |d: &&compare::Difference| d.found == "missing" && d.allowed.is_none();
    verdict.failed += differences.iter().filter(is_missing).count();
    verdict
}
