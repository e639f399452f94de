//! xfstests: its `check` mounts and unmounts by mount(8), for which `xfstests.sh` provides the helper.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{Ended, Places, TreeArgs};
use crate::interrupt;

pub(super) const EXCEPTIONS: &str = include_str!("xfstests.exceptions");
const SCRIPT: &str = include_str!("xfstests.sh");
const WHAT: [&str; 2] = ["-g", "generic/quick"];

pub(super) fn run(args: &TreeArgs, places: &Places) -> anyhow::Result<Vec<(String, Ended)>> {
    let is_built = places.tree.join("check").exists() && places.tree.join("ltp/fsstress").exists();
    anyhow::ensure!(
        is_built,
        "{} is not a checkout of xfstests that is built: its README says which packages and users it needs; then run \
         `make` there",
        places.tree.display()
    );
    let script = places.dir.join("xfstests.sh");
    fs::write(&script, SCRIPT).context("writing the script")?;
    // Its ordinary users come through here.
    for dir in [Some(places.dir.as_path()), places.dir.parent(), places.dir.parent().and_then(Path::parent)] {
        let Some(dir) = dir else { continue };
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).with_context(|| dir.display().to_string())?;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"]).arg(&script);
    command.arg(&places.dir).arg(&places.tree).arg(&places.transom).arg(args.mount_options());
    if args.what.is_empty() {
        command.args(WHAT)
    } else {
        command.args(&args.what)
    };
    let output = interrupt::run(command.stdin(Stdio::null()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ended = parse(&text);
    if let Some(keep) = &args.keep {
        keep_differences(&places.dir.join("results"), &keep.join("xfstests"))?;
    }
    anyhow::ensure!(!ended.is_empty(), "check ran no test and ended with {}", output.status);
    Ok(ended)
}

/// Reads the last lines of `check`, each of which lists tests.
pub(super) fn parse(text: &str) -> Vec<(String, Ended)> {
    let listed = |label: &str| -> Vec<&str> {
        let lists = text.lines().filter_map(|line| line.strip_prefix(label));
        lists.flat_map(str::split_whitespace).collect()
    };
    let (ran, not_run, failed) = (listed("Ran:"), listed("Not run:"), listed("Failures:"));
    let ended = |test: &str| {
        if failed.contains(&test) {
            Ended::Failed
        } else if not_run.contains(&test) {
            Ended::NotRun
        } else {
            Ended::Passed
        }
    };
    ran.iter().map(|test| ((*test).to_owned(), ended(test))).collect()
}

/// Copies what `check` leaves of tests that failed.
fn keep_differences(results: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").arg("-r").arg(results).arg(to).status().context("running cp")?;
    anyhow::ensure!(copied.success(), "the results cannot be copied to {}", to.display());
    Ok(())
}
