//! Random operations on one file in a guest, seen at a path with a window and at one without, against a model.

use crate::{Verdict, guest::Virtual, places::Places, scenario::Scenario};
use transom_vm::Share;

/// Runs the exerciser for so many seconds.
pub(crate) fn run(
    scenario: &Scenario,
    machine: &Virtual,
    places: &Places<'_>,
    seconds: u64,
) -> anyhow::Result<Verdict> {
    let share = places.fresh("share")?;
    let host = places.tools(&[&places.executable("transom-cases")?])?;
    let tools = Share { host, guest: "/tools".into(), is_read_only: true, ..Share::default() };
    let shares = vec![machine.share(&share, "/share"), machine.plain_share(&share, "/plain"), tools];
    let seconds = seconds.to_string();
    // A share that bypasses the guest's page cache refuses shared mappings on older kernels.
    let command = ["/tools/transom-cases", "fsx", "--seconds", &seconds, "--unmapped", "2", "/share", "/plain"];
    let outcome = machine.run_with(shares, &command)?;
    places.keep(&scenario.name(), &outcome.stdout)?;
    let text = String::from_utf8_lossy(&outcome.stdout);
    anyhow::ensure!(outcome.exit_code == 0, "{text}{}", String::from_utf8_lossy(&outcome.stderr));
    Ok(Verdict::passed(text.lines().last().map(str::to_owned)))
}
