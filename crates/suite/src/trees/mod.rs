//! xfstests and LTP, from a checkout that the user has built, over a mount: `transom-suite xfstests` and `ltp`.
//!
//! Neither suite is in a package registry, so neither is run by `make test`. [`exceptions`] lists the tests that fail
//! although nothing is wrong with the mount, each with its reason.

mod exceptions;
mod ltp;
mod xfstests;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use exceptions::Exceptions;

use crate::{
    Verdict, interrupt,
    places::{Common, Search},
};

/// What both suites are told.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// The checkout, which is built already; an installed LTP too
    #[arg(long, value_name = "DIR")]
    tree: PathBuf,

    /// The cache mode of the mount: never, metadata, auto or always
    #[arg(long, value_name = "MODE", default_value = "auto")]
    cache: String,

    /// Have the kernel read and write the host's files itself
    #[arg(long)]
    passthrough: bool,

    /// More options of the mount, as for mount(8)
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Option<String>,

    /// Leave the results in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// What to run: arguments of xfstests' `check` [default: -g generic/quick], or files of LTP's `runtest`
    /// [default: fs fs_perms_simple fcntl-locktests syscalls]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    what: Vec<String>,
}

/// What a suite may add to a share: some tests write until nothing is left. Others need 5 GiB, and say so.
const ROOM: &str = "6G";

/// How one test of a suite ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    /// In a directory of the host as well.
    FailedAnywhere,
    NotRun,
}

/// Runs xfstests. Errors: it cannot run here, or it broke off.
pub(crate) fn xfstests(args: &TreeArgs) -> anyhow::Result<Verdict> {
    run(args, "xfstests", xfstests::EXCEPTIONS, xfstests::run)
}

/// Runs LTP. Errors: it cannot run here, or it broke off.
pub(crate) fn ltp(args: &TreeArgs) -> anyhow::Result<Verdict> {
    run(args, "ltp", ltp::EXCEPTIONS, ltp::run)
}

type Suite = fn(&TreeArgs, &Places) -> anyhow::Result<Vec<(String, Ended)>>;

/// Where a suite runs.
struct Places {
    /// Everything that is written.
    dir: PathBuf,
    tree: PathBuf,
    transom: PathBuf,
}

fn run(args: &TreeArgs, name: &str, exceptions: &str, suite: Suite) -> anyhow::Result<Verdict> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "{name} mounts file systems: run it as root");
    anyhow::ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse");
    let exceptions = Exceptions::parse(exceptions)?;
    let tree = args.tree.canonicalize().with_context(|| args.tree.display().to_string())?;
    let common = Common::new(args.keep.clone(), None, None, Search::default())?;
    interrupt::watch(common.dir().to_owned())?;
    let _mounting = interrupt::Mounting::begin()?;
    let scenario = common.places(0)?;
    let places = Places { dir: scenario.fresh(name)?, tree, transom: scenario.executable("transom")? };
    scenario.executable("transomd")?;
    let ended = suite(args, &places)?;
    if let Some(keep) = &args.keep {
        let text: String = ended.iter().map(|(test, ended)| format!("{test} {ended:?}\n")).collect();
        std::fs::write(keep.join(format!("{name}.txt")), text).context("keeping the results")?;
    }
    Ok(judge(&ended, &exceptions, &args.mode()))
}

impl TreeArgs {
    /// By this name, the list of exceptions knows the mount.
    fn mode(&self) -> String {
        format!("{}{}", self.cache, if self.passthrough { ",passthrough" } else { "" })
    }

    /// The options of the mount: what makes it as good as the bare directory, and what the user wants.
    fn mount_options(&self) -> String {
        let mut options =
            vec![format!("cache={}", self.cache), "posix_acl,preserve_noatime,killpriv_v2,birth_times".to_owned()];
        options.push("modcaps=+sys_admin:+linux_immutable".to_owned());
        options.push(format!("quota={ROOM}"));
        options.extend(self.passthrough.then(|| "passthrough".to_owned()));
        options.extend(self.options.clone());
        options.join(",")
    }
}

/// Compares how tests ended with the list of exceptions.
fn judge(ended: &[(String, Ended)], exceptions: &Exceptions, mode: &str) -> Verdict {
    let mut verdict = Verdict::default();
    for (test, ended) in ended {
        match (ended, exceptions.reason(test, mode)) {
            (Ended::NotRun, _) => verdict.skipped += 1,
            (Ended::FailedAnywhere, _) => {
                verdict.known += 1;
                verdict.remarks.push(format!("    {test} fails in a directory of the host too"));
            }
            (Ended::Passed, None) => verdict.passed += 1,
            (Ended::Passed, Some(reason)) => {
                verdict.passed += 1;
                verdict.remarks.push(format!("    {test} passes and is listed as an exception: {reason}"));
            }
            (Ended::Failed, Some(reason)) => {
                verdict.known += 1;
                verdict.remarks.push(format!("    {test} fails, as is known: {reason}"));
            }
            (Ended::Failed, None) => {
                verdict.failed += 1;
                verdict.remarks.push(format!("    {test} failed"));
            }
        }
    }
    verdict
}

#[cfg(test)]
#[path = "trees_test.rs"]
mod trees_test;
