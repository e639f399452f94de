//! Changes of the host in a guest of User Mode Linux: its events and caches are compared with those of a local file
//! system in the same guest, and the host's files with themselves.
//!
//! This program is also the guest's first process and what runs in it. Prints a line for each case, and the sum.

mod between;
mod delay;
mod guest;
mod mounts;
mod nameless;
mod ordinary_user;
mod programs;
mod rows;
#[path = "../../src/sys.rs"]
#[expect(dead_code, reason = "handles are of no use here")]
mod sys;
mod trees;
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
    Accelerator, CacheMode, Events, GuestSpec, Kernel, Qemu, Root, RunOutcome, Share, Stdio, Vmm, agent,
    packages::{Cache, OnStderr},
    run,
    tools::Tools,
    uml::Uml,
};

use rows::{END, ROWS};
use watcher::PATIENCE;

/// The variable that makes this program the command in a guest.
const ROLE: &str = "TRANSOM_TEST_ROLE";

type Case = fn(&Machine, &Path) -> anyhow::Result<String>;

const CASES: [(&str, Case); 13] = [
    ("events and caches are those of local changes, and the host's files stay as they are", compares),
    ("changes under names that the guest does not know are seen", nameless::are_seen),
    ("nobody else can act as the agent", imitates),
    ("an agent that is killed loses no file", kills),
    ("a name that is renamed back and forth loses no file", trees::back_and_forth),
    ("guest and host have the same tree after many changes", trees::many),
    ("a share can be unmounted, and remounted read-only, while the agent serves it", trees::unmounted),
    ("shares that are mounted while the agent runs are served, and others refused", mounts::later),
    ("two guests: what one changes arrives in the other, and does not come back", between::guests),
    ("an ordinary user: the same holds without root", ordinary_user::runs),
    ("programs: watchers in other mount namespaces see the events", programs::namespaces),
    ("programs: inotifywait names what the host edits", programs::inotifywait),
    ("programs: entr runs its command when the host saves a file", programs::entr),
];

/// What takes longer to fetch; runs only if an argument is part of its name.
const BY_NAME: [(&str, Case); 12] = [
    ("kernel 6.1: events and caches are those of local changes", |_, daemon| on_kernel("6.1", daemon)),
    ("kernel 6.12: events and caches are those of local changes", |_, daemon| on_kernel("6.12", daemon)),
    ("kernel 7: events and caches are those of local changes", |_, daemon| on_kernel("7", daemon)),
    ("delay: User Mode Linux", delay::measure),
    ("delay: TCG, Linux 6.12", |_, daemon| delay::measure(&Machine::qemu("6.12")?, daemon)),
    ("ten thousand kills: an agent that is killed loses no file", kills_often),
    ("a hundred thousand changes: guest and host have the same tree after some were lost", trees::hundred_thousand),
    ("programs: watchdog of Python names what the host edits", programs::watchdog),
    ("programs: chokidar of npm names what the host edits", programs::chokidar),
    ("programs: webpack builds again when the host saves a file", programs::webpack),
    ("programs: rollup builds again when the host saves a file", programs::rollup),
    ("programs: tsc builds again when the host saves a file", programs::tsc),
];

/// Number of files that are removed and made again while agents die, and how often.
const FILES: usize = 20;
const ROUNDS: usize = 60;

fn main() -> ExitCode {
    agent::run_if_init();
    if let Some(role) = env::var_os(ROLE) {
        let played = match &*role.to_string_lossy() {
            "act" => between::act(),
            "compare" => guest::compare(),
            "nameless" => nameless::see(),
            "imitate" => guest::imitate(),
            "delay" => delay::answer(),
            "kill" => guest::kill(),
            "tree" => trees::see(),
            "mounts" => mounts::see_later(),
            "unmount" => trees::see_unmounted(),
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
    let (machine, daemon) = match (Machine::uml(), daemon()) {
        (Ok(machine), Ok(daemon)) => (machine, daemon),
        (Err(error), _) | (_, Err(error)) => {
            println!("SKIPPED: {error:#}");
            println!("0 passed, 0 failed, 1 skipped");
            return ExitCode::SUCCESS;
        }
    };
    let (mut passed, mut failed) = (0, 0);
    // Options are for cargo's own harness.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_wanted = |what: &str| filter.as_ref().is_none_or(|filter| what.contains(filter));
    let by_name = BY_NAME.into_iter().filter(|_| filter.is_some());
    for (what, case) in CASES.into_iter().chain(by_name).filter(|(what, _)| is_wanted(what)) {
        let begun = Instant::now();
        match case(&machine, &daemon) {
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

/// What the guests run on.
pub(crate) struct Machine {
    kernel: Kernel,
    vmm: Box<dyn Vmm + Sync>,
    memory_mib: u32,
    /// For a boot with what runs in it.
    timeout: Duration,
}

impl Machine {
    fn uml() -> anyhow::Result<Self> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let kernel = Tools::new(&cache, &report).uml_kernel(None).context("no kernel of User Mode Linux")?;
        Ok(Self { kernel, vmm: Box::new(Uml), memory_mib: 256, timeout: 4 * PATIENCE })
    }

    /// Debian's kernel of a series, emulated.
    fn qemu(series: &str) -> anyhow::Result<Self> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let tools = Tools::new(&cache, &report);
        let kernel = tools.kernel(Some(Path::new(series))).context("a kernel")?;
        let vmm = Qemu::new(tools.qemu(None, true).context("QEMU")?, Accelerator::Tcg, tools.cache());
        Ok(Self { kernel, vmm: Box::new(vmm), memory_mib: 512, timeout: 20 * PATIENCE })
    }
}

/// Compares events and caches, by names and without, on a kernel of a series.
fn on_kernel(series: &str, daemon: &Path) -> anyhow::Result<String> {
    let machine = match Machine::qemu(series) {
        Ok(machine) => machine,
        Err(error) => {
            println!("SKIPPED: Linux {series} cannot be had here: {error:#}");
            return Ok(String::new());
        }
    };
    let (rows, files) = (compares(&machine, daemon)?, nameless::are_seen(&machine, daemon)?);
    let release = machine.kernel.image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("{rows}{files}({release}) "))
}

/// Returns transomd, if it was built and this machine lets it observe the file system of the shares.
fn daemon() -> anyhow::Result<PathBuf> {
    let this = env::current_exe()?;
    let daemon = this.parent().and_then(Path::parent).map(|dir| dir.join("transomd")).context("no directory")?;
    anyhow::ensure!(daemon.is_file(), "transomd is not built");
    let folder = tempfile::tempdir()?;
    let root = fs::File::open(folder.path())?;
    let options =
        transom_watch::Options { weakest: transom_watch::Strength::Directories, ..transom_watch::Options::default() };
    transom_watch::Watch::open(&root, &options).context("changes cannot be observed here")?;
    Ok(daemon)
}

fn compares(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), machine, daemon, "compare")?;
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

fn imitates(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let guest = Guest::new(folder.path(), machine, daemon, "imitate")?;
    let share = guest.share.clone();
    fs::write(share.join("real"), "kept")?;
    let before = untouched(&share)?;
    let (outcome, ()) = guest.run_alone()?;
    anyhow::ensure!(outcome.exit_code == 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    let after = untouched(&share)?;
    anyhow::ensure!(before == after, "before {before:?}, after {after:?}");
    Ok(String::new())
}

fn kills(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    kills_until(machine, daemon, ROUNDS, Duration::from_secs(0))
}

/// Goes on for about as long as ten thousand kills take.
fn kills_often(machine: &Machine, daemon: &Path) -> anyhow::Result<String> {
    let mut sum = 0;
    while sum < 10_000 {
        let remark = kills_until(machine, daemon, 2500, Duration::from_secs(300))?;
        sum += remark
            .split(|letter: char| !letter.is_ascii_digit())
            .find_map(|word| word.parse::<u32>().ok())
            .unwrap_or(0);
        println!("{sum} kills");
    }
    Ok(format!("({sum} kills) "))
}

fn kills_until(machine: &Machine, daemon: &Path, rounds: usize, more: Duration) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let mut guest = Guest::new(folder.path(), machine, daemon, "kill")?;
    guest.spec.timeout = Some(4 * PATIENCE + more);
    let (share, control) = (guest.share.clone(), guest.control.clone());
    let name = |file: usize| share.join(format!("file {file}"));
    for file in 0..FILES {
        fs::write(name(file), file.to_string())?;
    }
    let (outcome, ()) = guest.run(|| {
        for round in 0..rounds {
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
pub(crate) struct Guest<'a> {
    machine: &'a Machine,
    share: PathBuf,
    control: PathBuf,
    spec: GuestSpec,
}

impl<'a> Guest<'a> {
    fn new(folder: &Path, machine: &'a Machine, daemon: &Path, role: &str) -> anyhow::Result<Self> {
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
            kernel: machine.kernel.clone(),
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
            memory_mib: machine.memory_mib,
            cpus: 1,
            scratch: None,
            stdio: Stdio::default(),
            timeout: Some(machine.timeout),
            console: env::var_os("TRANSOM_TEST_CONSOLE").map(PathBuf::from),
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: false,
        };
        Ok(Self { machine, share, control, spec })
    }

    /// Boots, waits until the guest is ready, acts, and waits for the guest's end.
    fn run<T>(self, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(RunOutcome, T)> {
        thread::scope(|scope| {
            let running = scope.spawn(|| run(&self.spec, &*self.machine.vmm));
            let deadline = Instant::now() + self.machine.timeout;
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
        Ok((run(&self.spec, &*self.machine.vmm)?, ()))
    }
}

/// Returns what a replay must not change of the files below `root`: times of contents and of attributes, owners.
pub(crate) fn untouched(root: &Path) -> io::Result<Vec<String>> {
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
