//! Programs and test suites from Debian's packages, run over a mount.
//!
//! [`root`] fetches the packages into the cache and enters them; nothing is installed or copied into the tree. Each
//! other file runs one program. A failure that also occurs on the bare directory does not count against the mount.

mod dbench;
mod fio;
mod postgres;
mod root;
mod sqlite;
mod stress_ng;

use std::process::Output;

use crate::{Verdict, job::Program, mounted::Mounted, places::Places, scenario::Scenario};
use root::Root;

/// Runs `program` over a mount of `scenario`.
///
/// # Errors
/// The packages cannot be had, the mount cannot be made, or it ended before the program did.
pub(crate) fn run(
    scenario: &Scenario,
    program: Program,
    mounted: &Mounted,
    places: &Places<'_>,
) -> anyhow::Result<Verdict> {
    let root = match places.fetch(Root::fetch) {
        Ok(root) => root,
        Err(error) => return Ok(Verdict::skipped(&format!("the packages of {}: {error:#}", program.name()))),
    };
    let (share, bare) = (places.fresh("share")?, places.fresh("bare")?);
    let tests = mounted.at(&share, |at| match program {
        Program::StressNg => stress_ng::run(&root, at, &bare),
        Program::Fio => fio::run(&root, at),
        Program::Dbench => dbench::run(&root, at),
        Program::Sqlite => sqlite::run(&root, at, &share, places.seed()),
        Program::Postgres => postgres::run(&root, at),
    })?;
    let mut log = Vec::new();
    let mut verdict = Verdict::default();
    for test in &tests {
        log.extend_from_slice(format!("== {}: {:?}\n{}\n", test.name, test.outcome, test.output).as_bytes());
        match &test.outcome {
            Outcome::Passed => verdict.passed += 1,
            Outcome::Skipped => verdict.skipped += 1,
            Outcome::FailsAnywhere => verdict.known += 1,
            Outcome::Failed(reason) => {
                verdict.failed += 1;
                verdict.remarks.push(format!("    {}: {reason}", test.name));
                verdict.remarks.extend(last_lines(&test.output).map(|line| format!("        {line}")));
            }
        }
    }
    places.keep(&scenario.name(), &log)?;
    Ok(verdict)
}

/// One test of a program.
struct Test {
    name: String,
    outcome: Outcome,
    /// What the program printed.
    output: String,
}

#[derive(Debug)]
enum Outcome {
    Passed,
    /// The program says that it cannot run here.
    Skipped,
    /// It fails on the bare directory too.
    FailsAnywhere,
    Failed(String),
}

impl Test {
    /// A test that passes where `output` is that of a program with status 0.
    fn of(name: impl Into<String>, output: &Output) -> Self {
        let outcome = if output.status.success() {
            Outcome::Passed
        } else {
            Outcome::Failed(format!("ended with {}", output.status))
        };
        Self { name: name.into(), outcome, output: text(output) }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn last_lines(text: &str) -> impl Iterator<Item = &str> {
    const COUNT: usize = 15;
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(COUNT);
    lines.into_iter().skip(from)
}
