//! The results of earlier runs, so that a run of several hours can resume where it was stopped.
//!
//! The file has one line for each finished scenario: its counts, seconds and name. The user must make sure that the
//! file belongs to the same sources.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    time::Duration,
};

use anyhow::Context as _;

use crate::{Verdict, scenario::Scenario};

/// The file, and what it said at the beginning.
pub(crate) struct Progress {
    file: File,
    earlier: Vec<Entry>,
}

struct Entry {
    name: String,
    verdict: Verdict,
    took: Duration,
}

impl Progress {
    /// Reads `path`, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Self { file, earlier: text.lines().filter_map(parse).collect() })
    }

    /// Returns the verdict of an earlier run, and how long it took, if `scenario` need not run again: it ran, and
    /// nothing failed.
    pub(crate) fn passed(&self, scenario: &Scenario) -> Option<(&Verdict, Duration)> {
        let name = scenario.name();
        let last = self.earlier.iter().rev().find(|entry| entry.name == name)?;
        (last.verdict.passed > 0 && last.verdict.failed == 0).then_some((&last.verdict, last.took))
    }

    /// Adds a line about a scenario that has ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, scenario: &Scenario, verdict: &Verdict, took: Duration) -> anyhow::Result<()> {
        self.file.write_all(line(&scenario.name(), verdict, took).as_bytes()).context("writing what a scenario came to")
    }
}

fn line(name: &str, verdict: &Verdict, took: Duration) -> String {
    let Verdict { passed, failed, skipped, known, .. } = verdict;
    format!("{passed} {failed} {skipped} {known} {} {name}\n", took.as_secs())
}

/// Reads a line; `None` for one that a killed run left unfinished.
fn parse(line: &str) -> Option<Entry> {
    let mut words = line.splitn(6, ' ');
    let mut number = || words.next()?.parse().ok();
    let (passed, failed, skipped, known, seconds): (_, _, _, _, usize) =
        (number()?, number()?, number()?, number()?, number()?);
    let name = words.next()?.to_owned();
    let verdict = Verdict { passed, failed, skipped, known, remarks: Vec::new() };
    Some(Entry { name, verdict, took: Duration::from_secs(seconds as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a first run left, with `lines` of scenarios by their number in the table.
    fn after(lines: &[(usize, Verdict)], rest: &str) -> (Vec<Scenario>, Progress) {
        let scenarios = crate::scenario::all();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let mut first = Progress::open(&path).unwrap();
        for (number, verdict) in lines {
            first.add(&scenarios[*number], verdict, Duration::from_secs(7)).unwrap();
        }
        first.file.write_all(rest.as_bytes()).unwrap();
        (scenarios, Progress::open(&path).unwrap())
    }

    #[test]
    fn a_scenario_that_passed_need_not_run_again() {
        let passed = Verdict { passed: 3, skipped: 1, known: 2, ..Verdict::default() };
        let (scenarios, second) = after(&[(0, passed)], "");
        let (verdict, took) = second.passed(&scenarios[0]).unwrap();
        assert_eq!((verdict.passed, verdict.skipped, verdict.known), (3, 1, 2));
        assert_eq!(took, Duration::from_secs(7));
        assert!(second.passed(&scenarios[1]).is_none());
    }

    #[test]
    fn a_scenario_that_failed_or_could_not_run_runs_again() {
        let failed = Verdict { passed: 300, failed: 1, ..Verdict::default() };
        let (scenarios, second) = after(&[(0, failed), (1, Verdict::skipped("no network"))], "");
        assert!(second.passed(&scenarios[0]).is_none());
        assert!(second.passed(&scenarios[1]).is_none());
    }

    #[test]
    fn the_last_verdict_counts_and_an_unfinished_line_does_not() {
        let failed = Verdict { failed: 1, ..Verdict::default() };
        let passed = Verdict { passed: 1, ..Verdict::default() };
        let name = crate::scenario::all()[1].name();
        let (scenarios, second) = after(&[(0, failed), (0, passed)], &format!("5 0 0 {name}"));
        assert!(second.passed(&scenarios[0]).is_some());
        assert!(second.passed(&scenarios[1]).is_none());
    }

    #[test]
    fn no_two_scenarios_have_one_name() {
        let mut names: Vec<_> = crate::scenario::all().iter().map(Scenario::name).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
