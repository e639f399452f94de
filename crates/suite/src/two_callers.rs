//! Random programs of root and an ordinary user on a mount, against the same programs in a bare directory.

use std::fs;

use anyhow::Context as _;
use transom_conformance::{known, programs};

use crate::{
    Verdict,
    guest::Machine,
    places::Places,
    scenario::{Guest, Scenario},
};

/// The beginning of the line that tells a difference.
const DIFFERENT: &str = "DIFFERENT ";

/// Runs as many programs as the command line says, or else `count`.
pub(crate) fn run(scenario: &Scenario, machine: &Machine, places: &Places<'_>, count: u64) -> anyhow::Result<Verdict> {
    let (bare, share) = (places.fresh("bare")?, places.fresh("share")?);
    let tools = places.tools(&[&places.executable("transom-cases")?])?;
    fs::write(tools.join("allow"), allowed(scenario)).context("writing the list of allowed differences")?;
    let (count, seed) = (places.programs().unwrap_or(count).to_string(), places.seed().to_string());
    let [bare_path, share_path] = [&bare, &share].map(|path| path.to_string_lossy().into_owned());
    let command = [
        "/tools/transom-cases",
        "two-callers",
        "--bare",
        &bare_path,
        "--share",
        &share_path,
        "--allow",
        "/tools/allow",
        "--programs",
        &count,
        "--seed",
        &seed,
        "/share",
    ];
    let output = machine.run(&share, &tools, &command);
    // A program that was cut off may have left files that cannot be removed.
    programs::clear_flags(&bare);
    programs::clear_flags(&share);
    let output = output?;
    places.keep(&scenario.name(), &output)?;
    let text = String::from_utf8_lossy(&output);
    let last = text.lines().last().unwrap_or_default();
    anyhow::ensure!(last.ends_with(&format!("seed {seed}")) && last.contains("programs of"), "it broke off: {text}");
    let failed = text.lines().filter(|line| line.starts_with(DIFFERENT)).count();
    Ok(match failed {
        0 => Verdict::passed(Some(last.to_owned())),
        _ => {
            Verdict { failed, remarks: text.lines().map(|line| format!("    {line}")).collect(), ..Verdict::default() }
        }
    })
}

/// The known differences of `scenario`.
fn allowed(scenario: &Scenario) -> String {
    let lists = [
        (true, known::TWO_CALLERS),
        (scenario.options.contains(&"--cache=never"), known::TWO_CALLERS_DIRECT_IO),
        (scenario.options.contains(&"--writeback"), known::TWO_CALLERS_WRITEBACK),
        (scenario.guest == Guest::Passthrough, known::TWO_CALLERS_PASSTHROUGH),
    ];
    lists.into_iter().filter(|(counts, _)| *counts).map(|(_, list)| list).collect()
}
