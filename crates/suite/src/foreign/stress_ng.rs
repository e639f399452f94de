//! stress-ng's stressors of the class "filesystem", each on the mount and, where it fails there, on the bare directory.

use std::path::Path;

use super::{Outcome, Test, root, text};

/// Stressors that are about something other than the directory under test.
const ELSEWHERE: [&str; 7] = ["binderfs", "bind-mount", "dnotify", "eventfd", "handle", "ioprio", "procfs"];

/// Statuses of stress-ng: a stressor failed; it is not implemented here, or lacks a resource.
const FAILED: i32 = 2;
const NOT_HERE: [i32; 2] = [3, 4];

pub(super) fn run(root: &root::Root, share: &Path, bare: &Path) -> anyhow::Result<Vec<Test>> {
    let listed = text(&root.run(share, &["stress-ng", "--class", "filesystem?"])?);
    let (_, names) = listed.split_once("stressors:").unwrap_or_default();
    anyhow::ensure!(!names.trim().is_empty(), "stress-ng lists no stressors: {listed}");
    let chosen = names.split_whitespace().filter(|name| !ELSEWHERE.contains(name));
    chosen.map(|name| one(root, share, bare, name)).collect()
}

fn one(root: &root::Root, share: &Path, bare: &Path, name: &str) -> anyhow::Result<Test> {
    let stressor = format!("--{name}");
    let words = ["stress-ng", &stressor, "2", "--timeout", "1", "--verify", "--temp-path", root::SHARE, "--oomable"];
    let output = root.run(share, &words)?;
    let mut test = Test::of(name, &output);
    match output.status.code() {
        Some(code) if NOT_HERE.contains(&code) => test.outcome = Outcome::Skipped,
        Some(FAILED) if root.run(bare, &words)?.status.code() == Some(FAILED) => test.outcome = Outcome::FailsAnywhere,
        _ => {}
    }
    Ok(test)
}
