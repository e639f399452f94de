//! The comparison of a guest's results with the bare directory's.

use transom_conformance::{
    compare::{self, Allowed, Difference},
    known,
    report::{Report, Status},
};
use transom_vm::MountedBy;

use crate::{
    Verdict,
    job::Job,
    scenario::{Daemon, Guest, Scenario},
};

/// The known differences of `scenario`.
pub(crate) fn allowed(scenario: &Scenario) -> anyhow::Result<Vec<Allowed>> {
    let (is_peer, is_6_1) = (scenario.daemon == Daemon::Virtiofsd, scenario.guest == Guest::Qemu("6.1"));
    let collects_writes = scenario.options.contains(&"--writeback");
    let bypasses_cache = scenario.options.iter().any(|option| matches!(*option, "--cache=never" | "--cache=metadata"));
    let lists = [
        (true, known::LINUX_GUEST),
        (is_6_1, known::LINUX_6_1),
        (bypasses_cache, known::DIRECT_IO),
        (collects_writes, known::WRITEBACK),
        (scenario.dax.is_some(), known::DAX),
        (scenario.guest == Guest::Passthrough, known::PASSTHROUGH),
        (scenario.guest == Guest::UmlOverlay(MountedBy::Guest), known::OVERLAY_GUEST),
        (scenario.job == Job::SplitCases, known::SPLIT),
        (scenario.job == Job::Pjdfstest, known::MINIMAL_ROOT),
        (is_peer, known::VIRTIOFSD),
        (is_peer && is_6_1, known::VIRTIOFSD_LINUX_6_1),
        (is_peer && collects_writes, known::VIRTIOFSD_WRITEBACK),
    ];
    let parsed: Result<Vec<_>, _> =
        lists.into_iter().filter(|(counts, _)| *counts).map(|(_, list)| compare::parse_allowed(list)).collect();
    Ok(parsed?.concat())
}

/// Counts what agrees and lists what does not.
pub(crate) fn judge(oracle: &[Report], found: &[Report], allowed: &[Allowed]) -> Verdict {
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
    for Difference { case, what, expected, found, allowed } in &differences {
        match allowed {
            None => verdict.remarks.push(format!("    {case}: {what}: expected {expected}, found {found}")),
            Some(_) => verdict.known += 1,
        }
        // A case that the guest never came to has no report to be counted by.
        verdict.failed += usize::from(found == "missing" && allowed.is_none());
    }
    verdict
}
