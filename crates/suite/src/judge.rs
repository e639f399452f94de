//! The comparison of a guest's results with the bare directory's.

use transom_conformance::{
    compare::{self, Allowed, Difference},
    report::{Report, Status},
};

use crate::{
    Verdict,
    scenario::{Daemon, Guest, Job, Scenario},
};

/// What a Linux guest's own driver makes different, whatever the daemon.
const LINUX_GUEST: &str = include_str!("../../conformance/data/linux-guest.allow");
/// What an older one makes different.
const LINUX_6_1: &str = include_str!("../../conformance/data/linux-6.1.allow");
/// What it makes different where files bypass its page cache.
const DIRECT_IO: &str = include_str!("../../conformance/data/direct-io.allow");
/// What it makes different where it collects writes.
const WRITEBACK: &str = include_str!("../../conformance/data/writeback.allow");
/// Programs that pjdfstest wants and a minimal guest lacks.
const MINIMAL_ROOT: &str = include_str!("../../conformance/data/minimal-root.allow");
/// What it makes different where it maps files rather than copy them.
const DAX: &str = include_str!("../data/dax.allow");
/// What a mount makes different that passes files through.
const PASSTHROUGH: &str = include_str!("../data/passthrough.allow");
/// What the peer does differently.
const VIRTIOFSD: &str = include_str!("../../conformance/data/virtiofsd.allow");

/// The known differences of `scenario`.
pub(crate) fn allowed(scenario: &Scenario) -> anyhow::Result<Vec<Allowed>> {
    let bypasses_cache = scenario.options.iter().any(|option| matches!(*option, "--cache=never" | "--cache=metadata"));
    let lists = [
        (true, LINUX_GUEST),
        (scenario.guest == Guest::Qemu("6.1"), LINUX_6_1),
        (bypasses_cache, DIRECT_IO),
        (scenario.options.contains(&"--writeback"), WRITEBACK),
        (scenario.dax.is_some(), DAX),
        (scenario.guest == Guest::Passthrough, PASSTHROUGH),
        (scenario.job == Job::Pjdfstest, MINIMAL_ROOT),
        (scenario.daemon == Daemon::Virtiofsd, VIRTIOFSD),
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
