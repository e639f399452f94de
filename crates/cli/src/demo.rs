//! `transom demo`: runs a stock guest that works on a real tree, and compares every result with the host.
//!
//! The guest runs [`SCRIPT`], which records its progress in a file of a share that the host follows. [`window`] is the
//! second part, about DAX.

mod tree;
mod window;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio as Pipe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use transom_vm::{
    Accelerator, GuestSpec, Input, Output, Qemu, Root, RunOutcome, Share, Stdio,
    packages::{Cache, OnStderr},
    run as run_guest,
    tools::Tools,
};
use tree::Tree;
pub(crate) use window::DemoInside;

/// Share a source tree with a stock Linux guest, work on it there, and compare every byte with the host; then repeat
/// with DAX
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The tree, and optionally others [default: the current directory and the sources of the cargo registry]
    trees: Vec<PathBuf>,

    /// Fetch QEMU as a package into the cache if it is not installed
    #[arg(long)]
    fetch: bool,

    /// The daemon that serves the shares [default: transomd in this program's directory]
    #[arg(long, value_name = "PROGRAM", env = "TRANSOM_DAEMON")]
    daemon: Option<PathBuf>,
}

/// The guest's script. `$TREE` is the first tree; the working directory is the scratch share.
const SCRIPT: &str = r#"
step() { echo "$1" >> steps; }
step sums;  tr '\n' '\0' < list | xargs -0 sha256sum > sums || exit 21
step tar;   tar -cf tree.tar -T list 2> tar.log || exit 22
step files; cat from-host > from-host.read && echo "made in the guest, kernel $(uname -r)" > from-guest || exit 23
step git
if [ -n "$GIT" ]; then
    git -C "$TREE" rev-parse HEAD > git.out && git -C "$TREE" status --porcelain >> git.out || exit 24
fi
step end
"#;

const FROM_HOST: &str = "made on the host\n";
const STEP: Duration = Duration::from_millis(100);

/// One line of the final table.
struct Row {
    what: String,
    time: Duration,
    result: String,
    is_matched: bool,
}

impl Demo {
    /// Runs the demonstration; succeeds only if everything matched.
    pub(crate) fn execute(self) -> ExitCode {
        match self.rows() {
            Ok(rows) => {
                print_table(&rows);
                if rows.iter().all(|row| row.is_matched) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => {
                eprintln!("transom: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let trees = self.trees()?;
        let begun = Instant::now();
        let bar = progress("reading the tree on the host", 0);
        let tree = Tree::read(&trees, |files| bar.set_position(files as u64)).context("cannot read the tree")?;
        bar.finish_and_clear();
        ensure!(!tree.files.is_empty(), "no files in {trees:?}");
        let what = format!("read {} files, {:.1} MB, on the host", tree.files.len(), tree.bytes as f64 / 1e6);
        let mut rows = vec![Row::done(what, begun.elapsed(), "for comparison")];

        let git = git_state(&trees[0]);
        let scratch = tempfile::tempdir().context("cannot create a directory to share")?;
        fs::write(scratch.path().join("list"), tree.list())?;
        fs::write(scratch.path().join("from-host"), FROM_HOST)?;
        let (outcome, steps) = self.guest(&trees[0], &trees, scratch.path(), git.is_some(), tree.files.len())?;
        let timings = &outcome.timings;
        rows.push(Row::done(
            "boot of Debian's cloud kernel in QEMU".into(),
            timings.to_command(),
            "unmodified kernel with its own virtiofs driver",
        ));
        ensure!(
            outcome.exit_code == 0,
            "the guest's work failed with status {}:\n{}",
            outcome.exit_code,
            String::from_utf8_lossy(&outcome.stderr)
        );
        rows.extend(compared(&tree, scratch.path(), git.as_deref(), &steps)?);
        rows.extend(window::rows(&self.daemon()?).context("the part with a DAX window failed")?);
        Ok(rows)
    }

    fn daemon(&self) -> Result<PathBuf> {
        match &self.daemon {
            Some(path) => Ok(path.clone()),
            None => Ok(env::current_exe().context("cannot find this program's path")?.with_file_name("transomd")),
        }
    }

    /// Boots the guest, runs the script and follows it; returns the duration of each step.
    fn guest(
        &self,
        first: &Path,
        trees: &[PathBuf],
        scratch: &Path,
        has_git: bool,
        files: usize,
    ) -> Result<(RunOutcome, Vec<(String, Duration)>)> {
        let cache = Cache::locate()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let program = tools.qemu(None, self.fetch)?;
        let kernel = tools.kernel(None)?;
        let agent = env::current_exe().context("cannot find this program's path")?;
        let accelerator = Accelerator::best(&program, &kernel, tools.cache());
        let mut env = vec![("TREE".into(), first.into())];
        if has_git {
            // git refuses a checkout that the guest's root does not own.
            let trust = [("GIT", "1"), ("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory")];
            env.extend(trust.map(|(name, value)| (name.into(), value.into())));
            env.push(("GIT_CONFIG_VALUE_0".into(), "*".into()));
            env.push(("GIT_OPTIONAL_LOCKS".into(), "0".into()));
        }
        let share = |host: &Path, guest: &Path, is_read_only| Share {
            host: host.to_owned(),
            guest: guest.to_owned(),
            is_read_only,
            ..Share::default()
        };
        let mut shares = vec![share(scratch, Path::new("/mnt/scratch"), false)];
        shares.extend(trees.iter().map(|tree| share(tree, tree, true)));
        let spec = GuestSpec {
            kernel,
            daemon: self.daemon()?,
            agent,
            events: None,
            busybox: None,
            root: Root::Host(share(Path::new("/"), Path::new("/"), true)),
            shares,
            command: ["/bin/sh", "-c", SCRIPT].map(Into::into).into(),
            env,
            memory_mib: 1024,
            cpus: 2,
            scratch: None,
            stdio: Stdio { stdin: Input::Empty, stdout: Output::Capture, stderr: Output::Capture, is_terminal: false },
            timeout: None,
            console: None,
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: true,
        };
        let vmm = Qemu::new(program, accelerator, tools.cache());
        let is_over = AtomicBool::new(false);
        // This thread runs the guest, because the guest's processes die with the thread that started them.
        let (outcome, steps) = thread::scope(|scope| {
            let follower = scope.spawn(|| follow(scratch, files as u64, &is_over));
            let outcome = run_guest(&spec, &vmm);
            is_over.store(true, Ordering::Relaxed);
            (outcome, follower.join().unwrap_or_default())
        });
        Ok((outcome?, steps))
    }

    /// Returns the trees as absolute paths without links, which are valid in the guest, too.
    fn trees(&self) -> Result<Vec<PathBuf>> {
        let mut trees = self.trees.clone();
        if trees.is_empty() {
            trees.push(env::current_dir().context("cannot find the current directory")?);
            let cargo = env::var_os("CARGO_HOME").map(PathBuf::from);
            let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
            trees.extend(cargo.or_else(home).map(|dir| dir.join("registry/src")).filter(|dir| dir.is_dir()));
        }
        trees.iter().map(|tree| fs::canonicalize(tree).with_context(|| format!("cannot find {tree:?}"))).collect()
    }
}

impl Row {
    fn done(what: String, time: Duration, result: &str) -> Self {
        Self { what, time, result: result.to_owned(), is_matched: true }
    }

    fn compared(what: &str, time: Duration, is_matched: bool, matched: String) -> Self {
        let result = if is_matched { matched } else { "DIFFERS".to_owned() };
        Self { what: what.to_owned(), time, result, is_matched }
    }
}

/// Compares the guest's results in `scratch` with the host's.
fn compared(tree: &Tree, scratch: &Path, git: Option<&str>, steps: &[(String, Duration)]) -> Result<Vec<Row>> {
    let read = |name: &str| fs::read(scratch.join(name)).with_context(|| format!("the guest did not write {name}"));
    let time = |name: &str| steps.iter().find(|step| step.0 == name).map_or(Duration::ZERO, |step| step.1);
    let count = tree.files.len();

    let sums = read("sums")? == tree.sums().as_bytes();
    let mut rows = vec![Row::compared(
        "checksums in the guest",
        time("sums"),
        sums,
        format!("{count} of {count} equal to the host's"),
    )];
    let unpacked = unpack(scratch)?;
    let is_same = tree.files.iter().all(|(path, sum)| {
        let inside = unpacked.join(path.strip_prefix("/").unwrap_or(path));
        fs::read(inside).is_ok_and(|content| tree::checksum(&content) == *sum)
    });
    let size = fs::metadata(scratch.join("tree.tar"))?.len();
    let matched = format!("{:.1} MB, every file is equal after unpacking", size as f64 / 1e6);
    rows.push(Row::compared("tar of the tree into the share", time("tar"), is_same, matched));

    let both = read("from-host.read")? == FROM_HOST.as_bytes() && read("from-guest")?.starts_with(b"made in the guest");
    rows.push(Row::compared(
        "a file written by each side, read by the other",
        time("files"),
        both,
        "both read correctly".into(),
    ));
    match git {
        Some(expected) => {
            let is_same = read("git.out")? == expected.as_bytes();
            rows.push(Row::compared("git status", time("git"), is_same, "equal to the host's".into()));
        }
        None => rows.push(Row::done(
            "git status".into(),
            Duration::ZERO,
            "skipped: git is not installed, or this is not a checkout",
        )),
    }
    Ok(rows)
}

fn unpack(scratch: &Path) -> Result<PathBuf> {
    let folder = scratch.join("unpacked");
    fs::create_dir(&folder)?;
    let status = Command::new("tar").arg("-xf").arg(scratch.join("tree.tar")).arg("-C").arg(&folder).status();
    ensure!(status.context("cannot run tar")?.success(), "cannot unpack the guest's archive");
    Ok(folder)
}

/// Returns git's commit and status, or `None` without git or outside a checkout.
fn git_state(tree: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(tree).args(arguments).env("GIT_OPTIONAL_LOCKS", "0").stderr(Pipe::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    Some(git(&["rev-parse", "HEAD"])? + &git(&["status", "--porcelain"])?)
}

/// Shows the guest's progress until `is_over`; returns the duration of each step.
fn follow(scratch: &Path, files: u64, is_over: &AtomicBool) -> Vec<(String, Duration)> {
    let bar = progress("booting the guest", files);
    let mut begun: Vec<(String, Instant)> = Vec::new();
    while !is_over.load(Ordering::Relaxed) && begun.last().is_none_or(|step| step.0 != "end") {
        for name in fs::read_to_string(scratch.join("steps")).unwrap_or_default().lines().skip(begun.len()) {
            bar.set_message(format!("in the guest: {name}"));
            begun.push((name.to_owned(), Instant::now()));
        }
        if begun.last().is_some_and(|step| step.0 == "sums") {
            let sums = fs::read(scratch.join("sums")).unwrap_or_default();
            bar.set_position(sums.iter().filter(|&&byte| byte == b'\n').count() as u64);
        }
        thread::sleep(STEP);
    }
    bar.finish_and_clear();
    begun.windows(2).map(|pair| (pair[0].0.clone(), pair[1].1 - pair[0].1)).collect()
}

fn progress(message: &'static str, len: u64) -> ProgressBar {
    let bar = if len > 0 { ProgressBar::new(len) } else { ProgressBar::no_length() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {pos} files  {wide_bar} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(message);
    bar.enable_steady_tick(STEP);
    bar
}

fn print_table(rows: &[Row]) {
    let width = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    println!();
    for Row { what, time, result, .. } in rows {
        println!("  {what:width$}  {:7.1} s  {result}", time.as_secs_f64());
    }
    let is_matched = rows.iter().all(|row| row.is_matched);
    println!("\n  {}", if is_matched { "Everything matched." } else { "NOT everything matched." });
}
