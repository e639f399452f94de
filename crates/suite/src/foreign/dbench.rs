//! dbench: the file-system load of an office's file server.

use std::path::Path;

use super::{Outcome, Test, root};

/// Clients at a time, and how long they run.
const CLIENTS: &str = "4";
const SECONDS: &str = "5";

pub(super) fn run(root: &root::Root, share: &Path) -> anyhow::Result<Vec<Test>> {
    let load = "/usr/share/dbench/client.txt";
    let output = root.run(share, &["dbench", "-c", load, "-D", root::SHARE, "-t", SECONDS, CLIENTS])?;
    let mut test = Test::of("dbench", &output);
    // A client reports an operation that failed as "[LINE] OPERATION failed" and goes on.
    let failure = test.output.lines().find(|line| line.starts_with('[') && line.contains("failed"));
    if let (Outcome::Passed, Some(line)) = (&test.outcome, failure) {
        test.outcome = Outcome::Failed(line.to_owned());
    }
    Ok(vec![test])
}
