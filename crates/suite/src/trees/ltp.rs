//! LTP: the commands of files in its directory `runtest`, one after the other, with a directory of the mount for their
//! temporary files.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::Context as _;
use transom_mount::{Mount, Options};
use transom_user::{daemon::Program, share::Share};

use super::{Ended, Places, TreeArgs};
use crate::interrupt;

pub(super) const EXCEPTIONS: &str = include_str!("ltp.exceptions");
const WHAT: [&str; 4] = ["fs", "fs_perms_simple", "fcntl-locktests", "syscalls"];
/// The status of a test that is not for this machine (TCONF). Source: LTP's include/tst_res_flags.h.
const NOT_RUN: i32 = 32;

pub(super) fn run(args: &TreeArgs, places: &Places) -> anyhow::Result<Vec<(String, Ended)>> {
    let lists = match args.what.as_slice() {
        [] => WHAT.map(str::to_owned).to_vec(),
        lists => lists.to_vec(),
    };
    let mut commands = Vec::new();
    for list in &lists {
        let path = places.tree.join("runtest").join(list);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: the tree must be LTP as `make install` leaves it", path.display()))?;
        commands.extend(parse(&text).map(|(name, command)| (name.to_owned(), command.to_owned())));
    }
    let bin = places.tree.join("testcases/bin");
    anyhow::ensure!(bin.is_dir(), "{} is not there: the tree must be LTP as `make install` leaves it", bin.display());
    let (share, at) = (places.dir.join("share"), places.dir.join("at"));
    for dir in [&share, &at] {
        fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
    }
    let mut options = Options { passthrough: args.passthrough, ..Options::default() };
    let mut program = Program::new(places.transom.with_file_name("transomd"));
    program.args = options.daemon_args();
    for option in args.mount_options().split(',').filter(|option| *option != "passthrough") {
        // What the mount does not know is the daemon's, as for mount(8).
        if options.parse(option).is_err() {
            let (name, value) = option.split_at(option.find('=').unwrap_or(option.len()));
            program.args.push(format!("--{}{value}", name.replace('_', "-")).into());
        }
    }
    program.args.extend(["--posix-lock".into(), "--flock".into()]);
    let source = Share::builder().shared_dir(&share).daemon(program);
    let mut mount = Mount::start(source, &at, options).context("mounting")?;
    let mut ended = Vec::new();
    let mut result = Ok(());
    for (name, command) in commands {
        match one(places, &bin, &at, &command) {
            Ok(status) => {
                let how = outcome(status);
                println!("{name} {how:?}");
                ended.push((name, how));
            }
            Err(error) => {
                result = Err(error.context(name));
                break;
            }
        }
        if let Some(cause) = mount.cause() {
            result = Err(anyhow::anyhow!("the mount ended before the suite: {cause}"));
            break;
        }
    }
    let unmounted = mount.unmount();
    result?;
    unmounted.context("unmounting")?;
    Ok(ended)
}

/// Runs one test in namespaces of its own, so that no process and no mount of it stays.
fn one(places: &Places, bin: &Path, at: &Path, command: &str) -> anyhow::Result<ExitStatus> {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut words = Command::new("unshare");
    words.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", command]);
    words.env("PATH", path).env("LTPROOT", &places.tree).env("TMPDIR", at).env("TMP", at).stdin(Stdio::null());
    Ok(interrupt::run(words.stderr(Stdio::null()).current_dir("/"))?.status)
}

/// The tests of a file in `runtest`: a name and a command in each line.
pub(super) fn parse(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(char::is_whitespace)).map(|(name, command)| (name, command.trim()))
}

fn outcome(status: ExitStatus) -> Ended {
    match status.code() {
        Some(0) => Ended::Passed,
        Some(NOT_RUN) => Ended::NotRun,
        _ => Ended::Failed,
    }
}
