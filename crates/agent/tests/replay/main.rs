//! Changes of the host in a guest of User Mode Linux: its events and caches are compared with those of a local file
//! system in the same guest, and the host's files with themselves.
//!
//! This program is also the guest's first process and what runs in it. Prints a line for each case, and the sum.

mod guest;
mod rows;
#[path = "../../src/sys.rs"]
#[expect(dead_code, reason = "handles are of no use here")]
mod sys;
mod watcher;

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use transom_vm::{
    CacheMode, Events, GuestSpec, Kernel, Root, RunOutcome, Share, Stdio, agent,
    packages::{Cache, Freshness, OnStderr, Packages},
    run,
    uml::{self, Uml},
};

use rows::{END, ROWS};
use watcher::PATIENCE;

/// The variable that makes this program the command in a guest.
const ROLE: &str = "TRANSOM_TEST_ROLE";

type Case = fn(&Path, &Path) -> anyhow::Result<String>;

const CASES: [(&str, Case); 3] = [
    ("events and caches are those of local changes, and the host's files stay as they are", compares),
    ("nobody else can act as the agent", imitates),
    ("an agent that is killed loses no file", kills),
];

/// Number of files that are removed and made again while agents die, and how often.
const FILES: usize = 20;
const ROUNDS: usize = 60;

fn main() -> ExitCode {
    agent::run_if_init();
    if let Some(role) = env::var_os(ROLE) {
        let played = match &*role.to_string_lossy() {
            "compare" => guest::compare(),
            "imitate" => guest::imitate(),
            "kill" => guest::kill(),
            role => Err(anyhow::anyhow!("unknown role {role}")),
        };
        return played.map_or_else(
            |error| {
                println!("{error:#}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let (kernel, daemon) = match (kernel(), daemon()) {
        (Ok(kernel), Ok(daemon)) => (kernel, daemon),
        (Err(error), _) | (_, Err(error)) => {
            println!("SKIPPED: {error:#}");
            println!("0 passed, 0 failed, 1 skipped");
            return ExitCode::SUCCESS;
        }
    };
    let (mut passed, mut failed) = (0, 0);
    let filter = env::args().nth(1).unwrap_or_default();
    for (what, case) in CASES.into_iter().filter(|(what, _)| what.contains(&filter)) {
        let begun = Instant::now();
        match case(&kernel, &daemon) {
            Ok(remark) => {
                println!("ok   {what} {remark}({} ms)", begun.elapsed().as_millis());
                passed += 1;
            }
            Err(error) => {
                println!("FAIL {what}: {error:#}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn kernel() -> anyhow::Result<PathBuf> {
    let cache = Cache::locate()?;
    let packages = OnStderr::default();
    uml::kernel(&Packages::new(&cache, &packages), Freshness::Cached).context("no kernel of User Mode Linux")
}

/// Returns transomd, if it was built and this machine lets it observe the file system of the shares.
fn daemon() -> anyhow::Result<PathBuf> {
    let this = env::current_exe()?;
    let daemon = this.parent().and_then(Path::parent).map(|dir| dir.join("transomd")).context("no directory")?;
    anyhow::ensure!(daemon.is_file(), "transomd is not built");
    let folder = tempfile::tempdir()?;
    let root = fs::File::open(folder.path())?;
    let options = transom_watch::Options { may_fall_back: false, ..transom_watch::Options::default() };
    transom_watch::Watch::open(&root, &options).context("changes cannot be observed here")?;
    Ok(daemon)
}

fn compares(kernel: &Path, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), kernel, daemon, "compare")?;
    let oracle = folder.path().join("oracle");
    for root in [&oracle, &guest.share] {
        for row in ROWS {
            fs::create_dir_all(root.join(row.name))?;
            (row.prepare)(&root.join(row.name))?;
        }
    }
    let act = |root: &Path| -> io::Result<()> {
        for row in ROWS {
            (row.act)(&root.join(row.name))?;
            fs::write(root.join(row.name).join(END), "")?;
        }
        Ok(())
    };
    act(&oracle)?;
    let share = guest.share.clone();
    let (outcome, before) = guest.run(|| {
        act(&share)?;
        Ok(untouched(&share)?)
    })?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    anyhow::ensure!(guest::describe(&oracle)? == guest::describe(&share)?, "the share is not what was made of it");
    anyhow::ensure!(before == untouched(&share)?, "times of the share changed");
    Ok(format!("({} rows) ", ROWS.len()))
}

fn imitates(kernel: &Path, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), kernel, daemon, "imitate")?;
    let share = guest.share.clone();
    fs::write(share.join("real"), "kept")?;
    let before = untouched(&share)?;
    let (outcome, ()) = guest.run_alone()?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    let after = untouched(&share)?;
    anyhow::ensure!(before == after, "before {before:?}, after {after:?}");
    Ok(String::new())
}

fn kills(kernel: &Path, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), kernel, daemon, "kill")?;
    let (share, control) = (guest.share.clone(), guest.control.clone());
    let name = |file: usize| share.join(format!("file {file}"));
    for file in 0..FILES {
        fs::write(name(file), file.to_string())?;
    }
    let (outcome, ()) = guest.run(|| {
        for round in 0..ROUNDS {
            for file in 0..FILES {
                if (round + file) % 2 == 0 {
                    fs::remove_file(name(file))?;
                    fs::write(name(file), file.to_string())?;
                } else {
                    let aside = share.join(format!("aside {file}"));
                    fs::rename(name(file), &aside)?;
                    fs::write(name(file), file.to_string())?;
                    fs::remove_file(&aside)?;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(fs::write(control.join("stop"), "")?)
    })?;
    let said = String::from_utf8_lossy(&outcome.stdout);
    anyhow::ensure!(outcome.exit_code == 0, "{said}");
    for file in 0..FILES {
        let content = fs::read_to_string(name(file)).with_context(|| format!("file {file} is lost"))?;
        anyhow::ensure!(content == file.to_string(), "file {file} has {content:?}");
    }
    let kills = said.trim().parse::<u32>().with_context(|| format!("{said:?}"))?;
    anyhow::ensure!(kills > 0, "no agent was killed");
    Ok(format!("({kills} kills) "))
}

/// A guest with two shares.
struct Guest {
    share: PathBuf,
    control: PathBuf,
    spec: GuestSpec,
}

impl Guest {
    fn new(folder: &Path, kernel: &Path, daemon: &Path, role: &str) -> anyhow::Result<Self> {
        let [share, control, program] = ["share", "control", "program"].map(|name| folder.join(name));
        for dir in [&share, &control, &program] {
            fs::create_dir(dir)?;
        }
        fs::copy(env::current_exe()?, program.join("program"))?;
        let mount = |host: &Path, guest: &str, cache| Share {
            host: host.to_owned(),
            guest: guest.into(),
            cache: Some(cache),
            ..Share::default()
        };
        let spec = GuestSpec {
            kernel: Kernel { image: kernel.to_owned(), modules: None },
            agent: env::current_exe()?,
            events: Some(Events { program: env!("CARGO_BIN_EXE_transom-agent").into(), are_required: true }),
            daemon: daemon.to_owned(),
            busybox: None,
            root: Root::Minimal,
            shares: vec![
                // What is not replayed stays stale.
                mount(&share, guest::SHARE, CacheMode::Always),
                Share { ..mount(&control, guest::CONTROL, CacheMode::Never) },
                Share { is_read_only: true, ..mount(&program, "/mnt/program", CacheMode::Auto) },
            ],
            command: vec!["/mnt/program/program".into()],
            env: vec![(ROLE.into(), role.into())],
            memory_mib: 256,
            cpus: 1,
            stdio: Stdio::default(),
            timeout: Some(4 * PATIENCE),
            console: env::var_os("TRANSOM_TEST_CONSOLE").map(PathBuf::from),
            directory: None,
            user: None,
            is_foreground: false,
        };
        Ok(Self { share, control, spec })
    }

    /// Boots, waits until the guest is ready, acts, and waits for the guest's end.
    fn run<T>(self, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(RunOutcome, T)> {
        thread::scope(|scope| {
            let running = scope.spawn(|| run(&self.spec, &Uml));
            let deadline = Instant::now() + 3 * PATIENCE;
            while !self.control.join("ready").exists() && !running.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            let is_ready = self.control.join("ready").exists();
            let acted = if is_ready { act() } else { Err(anyhow::anyhow!("the guest is not ready")) };
            let outcome = running.join().expect("the thread does not panic");
            match (outcome, acted) {
                (Ok(outcome), Ok(acted)) => Ok((outcome, acted)),
                (Ok(outcome), Err(error)) => {
                    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
                    Err(error.context(format!("{said}{:?}", outcome.warnings)))
                }
                (Err(error), _) => Err(error.into()),
            }
        })
    }

    /// Boots and waits for the guest's end.
    fn run_alone(self) -> anyhow::Result<(RunOutcome, ())> {
        Ok((run(&self.spec, &Uml)?, ()))
    }
}

/// Returns what a replay must not change of the files below `root`: times of contents and of attributes, owners.
fn untouched(root: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let stat = fs::symlink_metadata(&path)?;
            if stat.is_dir() {
                left.push(path.clone());
            }
            let times = [stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()];
            lines.push(format!("{path:?} {:o} {} {} {} {times:?}", stat.mode(), stat.uid(), stat.nlink(), stat.size()));
        }
    }
    lines.sort();
    Ok(lines)
}
