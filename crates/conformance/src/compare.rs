//! The differences between two runs of the list: the oracle's on the bare directory, and a client's.
//!
//! An allow list names known differences that are not the client's fault, one per line: `CASE WHAT REASON…`, where CASE
//! may end in `*`, WHAT is `status` or the key of an observation, and `#` begins a comment. An entry without a reason
//! is an error.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::report::Report;

/// One thing that the two runs disagree in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// `status`, or the key of an observation.
    pub what: String,
    /// What the oracle had.
    pub expected: String,
    /// What the client had.
    pub found: String,
    /// Why that is no fault, by the allow list.
    pub allowed: Option<String>,
}

/// A known difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    case: String,
    what: String,
    reason: String,
}

impl Allowed {
    /// Why it is no fault.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn covers(&self, case: &str, what: &str) -> bool {
        let is_case = match self.case.strip_suffix('*') {
            Some(prefix) => case.starts_with(prefix),
            None => case == self.case,
        };
        is_case && self.what == what
    }
}

/// Reads an allow list.
pub fn parse_allowed(text: &str) -> anyhow::Result<Vec<Allowed>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(index, line)| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().map(str::to_owned);
            let (case, what) = (word(), word());
            let reason = words.collect::<Vec<_>>().join(" ");
            match (case, what) {
                (Some(case), Some(what)) if !reason.is_empty() => Ok(Allowed { case, what, reason }),
                _ => anyhow::bail!("line {}: expected `CASE WHAT REASON`, found `{line}`", index + 1),
            }
        })
        .collect::<anyhow::Result<_>>()
        .context("allow list")
}

/// All differences, allowed ones marked; cases that only one side has count, unless `is_part` (a filtered run).
pub fn differences(oracle: &[Report], found: &[Report], allowed: &[Allowed], is_part: bool) -> Vec<Difference> {
    let oracle: BTreeMap<_, _> = oracle.iter().map(|report| (report.name.as_str(), report)).collect();
    let found: BTreeMap<_, _> = found.iter().map(|report| (report.name.as_str(), report)).collect();
    let mut differences = Vec::new();
    for (case, expected) in &oracle {
        match found.get(case) {
            Some(found) => compare_case(expected, found, &mut differences),
            None if is_part => {}
            None => differences.push(difference(case, "status", &expected.status.to_string(), "missing")),
        }
    }
    for (case, report) in &found {
        if !oracle.contains_key(case) {
            differences.push(difference(case, "status", "missing", &report.status.to_string()));
        }
    }
    for difference in &mut differences {
        let entry = allowed.iter().find(|entry| entry.covers(&difference.case, &difference.what));
        difference.allowed = entry.map(|entry| entry.reason.clone());
    }
    differences
}

fn difference(case: &str, what: &str, expected: &str, found: &str) -> Difference {
    let (case, what) = (case.to_owned(), what.to_owned());
    Difference { case, what, expected: expected.to_owned(), found: found.to_owned(), allowed: None }
}

fn compare_case(expected: &Report, found: &Report, differences: &mut Vec<Difference>) {
    if expected.status != found.status {
        let found_status = format!("{} {}", found.status, found.reason);
        let expected_status = format!("{} {}", expected.status, expected.reason);
        differences.push(difference(&expected.name, "status", expected_status.trim(), found_status.trim()));
        return;
    }
    let (mine, theirs) = (observations(&expected.observations), observations(&found.observations));
    for key in mine.keys().chain(theirs.keys().filter(|key| !mine.contains_key(*key))) {
        let (expected, seen) = (mine.get(key).copied().unwrap_or("none"), theirs.get(key).copied().unwrap_or("none"));
        if expected != seen {
            differences.push(difference(&found.name, key, expected, seen));
        }
    }
}

fn observations(text: &str) -> BTreeMap<&str, &str> {
    text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::parse;

    #[test]
    fn statuses_and_observations_are_compared_and_known_ones_marked() {
        let oracle = parse("PASS a/x [k=1 j=2]\nPASS a/y\nPASS b/z\nSKIPPED b/s needs root\n").unwrap();
        let found = parse("PASS a/x [k=1 j=3]\nFAIL a/y step 1: no\nSKIPPED b/s needs root\n").unwrap();
        let allowed = parse_allowed("# known\na/* j the driver says so\n").unwrap();
        let all = differences(&oracle, &found, &allowed, false);
        let told: Vec<_> = all.iter().map(|d| (d.case.as_str(), d.what.as_str(), d.allowed.is_some())).collect();
        assert_eq!(told, [("a/x", "j", true), ("a/y", "status", false), ("b/z", "status", false)]);
        assert_eq!(differences(&oracle, &found, &allowed, true).len(), 2);
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(parse_allowed("a/x status\n").is_err());
    }
}
