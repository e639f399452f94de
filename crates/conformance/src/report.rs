//! Results of a run: as lines for people, as JSON for programs, and read back from either.

use std::fmt;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// It found what it expected.
    Pass,
    /// It found something else.
    Fail,
    /// It could not run here.
    Skipped,
}

/// What one case came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The case.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// Why it failed or was skipped; empty when it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the file system decided, as `key=value` with spaces between.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observations: String,
}

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Skipped => "SKIPPED",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.name)?;
        match self.status {
            Status::Pass if self.observations.is_empty() => Ok(()),
            Status::Pass => write!(f, " [{}]", self.observations),
            Status::Fail | Status::Skipped => write!(f, " {}", self.reason),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Summary {
    /// Counts reports.
    pub fn of<'r>(reports: impl IntoIterator<Item = &'r Report>) -> Self {
        let mut summary = Self::default();
        for report in reports {
            match report.status {
                Status::Pass => summary.passed += 1,
                Status::Fail => summary.failed += 1,
                Status::Skipped => summary.skipped += 1,
            }
        }
        summary
    }
}

/// Reads what a run printed, in either form; lines that are neither (a guest's console has some) are passed over.
pub fn parse(text: &str) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.starts_with("{\"name\"") {
            reports.push(serde_json::from_str(line).with_context(|| format!("line {}", index + 1))?);
        } else if let Some(report) = parse_line(line) {
            reports.push(report);
        }
    }
    anyhow::ensure!(!reports.is_empty(), "there are no results in it");
    Ok(reports)
}

fn parse_line(line: &str) -> Option<Report> {
    let (word, rest) = line.split_once(' ')?;
    let status = match word {
        "PASS" => Status::Pass,
        "FAIL" => Status::Fail,
        "SKIPPED" => Status::Skipped,
        _ => return None,
    };
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (reason, observations) = match status {
        Status::Pass => ("", rest.trim_start_matches('[').trim_end_matches(']')),
        Status::Fail | Status::Skipped => (rest, ""),
    };
    Some(Report { name: name.into(), status, reason: reason.into(), observations: observations.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back_in_both_forms() {
        let reports = [
            Report { name: "a/b".into(), status: Status::Pass, reason: "".into(), observations: "x=1 y=ok".into() },
            Report { name: "a/c".into(), status: Status::Pass, reason: "".into(), observations: "".into() },
            Report { name: "a/d".into(), status: Status::Fail, reason: "step 1: no".into(), observations: "".into() },
            Report {
                name: "a/e".into(),
                status: Status::Skipped,
                reason: "needs root".into(),
                observations: "".into(),
            },
        ];
        let text: String = reports.iter().map(|report| format!("{report}\r\n")).collect();
        assert_eq!(parse(&format!("[    0.1] noise\n{text}1 passed, 0 failed, 0 skipped\n")).unwrap(), reports);
        let json: String = reports.iter().map(|report| serde_json::to_string(report).unwrap() + "\n").collect();
        assert_eq!(parse(&json).unwrap(), reports);
        assert_eq!(Summary::of(&reports).to_string(), "2 passed, 1 failed, 1 skipped");
    }
}
