//! LTP: the commands of files in its directory `runtest`, one after the other, with a directory of the mount for their
//! temporary files. What fails there runs again in a directory of the host, which is what the mount is compared with.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
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
/// The shell's status for a program that is not there: LTP builds what the machine has the headers for.
const NO_PROGRAM: i32 = 127;
/// Seconds after which a test is killed; LTP's own limits are shorter, but not all of its tests have one.
const LIMIT_S: &str = "900";

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
    let [share, at, bare] = ["share", "at", "bare"].map(|name| places.dir.join(name));
    for dir in [&share, &at, &bare] {
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
        let in_dir = |dir: &Path, label: &str| -> anyhow::Result<Ended> {
            let output = one(places, &bin, dir, &command)?;
            keep(args, &format!("{name}.{label}"), &output)?;
            Ok(outcome(output.status))
        };
        let how = in_dir(&at, "mount").and_then(|how| match how {
            Ended::Failed if in_dir(&bare, "bare")? == Ended::Failed => Ok(Ended::FailedAnywhere),
            how => Ok(how),
        });
        match how {
            Ok(how) => {
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
fn one(places: &Places, bin: &Path, at: &Path, command: &str) -> anyhow::Result<Output> {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut words = Command::new("unshare");
    words.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "timeout", "--signal=KILL", LIMIT_S]);
    words.args(["sh", "-c", &format!("exec 2>&1; {command}")]);
    words.env("PATH", path).env("LTPROOT", &places.tree).env("TMPDIR", at).env("TMP", at).stdin(Stdio::null());
    interrupt::run(words.current_dir("/"))
}

/// Keeps what a test said, if results are kept and it did not pass.
fn keep(args: &TreeArgs, name: &str, output: &Output) -> anyhow::Result<()> {
    let Some(keep) = args.keep.as_ref().filter(|_| !output.status.success()) else { return Ok(()) };
    let dir = keep.join("ltp");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    fs::write(dir.join(name), &output.stdout).with_context(|| format!("keeping {name}"))
}

/// The tests of a file in `runtest`: a name and a command in each line.
pub(super) fn parse(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(char::is_whitespace)).map(|(name, command)| (name, command.trim()))
}

fn outcome(status: ExitStatus) -> Ended {
    match status.code() {
        Some(0) => Ended::Passed,
        Some(NOT_RUN | NO_PROGRAM) => Ended::NotRun,
        _ => Ended::Failed,
    }
}
