//! A rig: a daemon, a front end and a load, and how each of them dies and is started again.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};

use super::{
    load::{self, IS_CUT_OFF, IS_WRONG, PROGRESS, WRONG},
    processes::{self, Process, Usage},
};
use crate::guest::INSIDE;

/// Far above what starting, mounting and booting take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The program of daemons, as the kernel shows its name.
const DAEMON: &str = "transomd";

/// What a rig's load runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `transom mount`, which reconnects to the next daemon.
    Mount,
    /// User Mode Linux.
    Machine,
    /// The library in a process, with a DAX window.
    Library,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Mount, Self::Machine, Self::Library];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Machine => "machine",
            Self::Library => "library",
        }
    }
}

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    Daemon,
    FrontEnd,
}

/// Executables of a soak.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) transom: PathBuf,
    pub(super) transomd: PathBuf,
}

/// A rig that runs, until it is dropped.
pub(super) struct Rig {
    kind: Kind,
    dir: PathBuf,
    programs: Programs,
    daemon: Option<Child>,
    front_end: Option<Child>,
    load: Option<Child>,
    /// The random numbers of the next load.
    seed: u64,
    /// The sum of generations on the host when it was last looked at.
    sum: u64,
    /// What the load had recorded when it was last asked.
    recorded: u64,
    asked_at: Instant,
}

impl Rig {
    /// Starts a rig whose files are in `dir`; those of an earlier run stay. Errors: a part of it cannot run here.
    pub(super) fn start(kind: Kind, dir: PathBuf, programs: Programs, seed: u64) -> anyhow::Result<Self> {
        for name in ["share", "at"] {
            fs::create_dir_all(dir.join(name)).with_context(|| dir.display().to_string())?;
        }
        load::prepare(&dir.join("share"))?;
        let sum = load::verify(&dir.join("share")).context("files of an earlier run")?;
        let (daemon, front_end, load) = (None, None, None);
        let mut rig =
            Self { kind, dir, programs, daemon, front_end, load, seed, sum, recorded: 0, asked_at: Instant::now() };
        rig.start_daemon()?;
        rig.start_front_end()?;
        rig.start_load()?;
        Ok(rig)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Kills the daemon or the front end, looks at the files on the host, and starts what is missing.
    ///
    /// # Errors
    /// The data is wrong, or the rig does not start again.
    pub(super) fn suffer(&mut self, death: Death) -> anyhow::Result<()> {
        match (self.kind, death) {
            // The mount waits for the next daemon, and its load with it.
            (Kind::Mount, Death::Daemon) => {
                end(&mut self.daemon);
                self.start_daemon()?;
            }
            (Kind::Mount | Kind::Library, Death::FrontEnd) => {
                self.end_front_end()?;
                self.verify()?;
                self.start_front_end()?;
                self.start_load()?;
            }
            (Kind::Library, Death::Daemon) => {
                end(&mut self.daemon);
                self.end_front_end()?;
                self.verify()?;
                self.start_daemon()?;
                self.start_load()?;
            }
            (Kind::Machine, death) => {
                let machine = self.load.as_ref().map_or(0, Child::id);
                for process in processes::tree(machine).into_iter().skip(1) {
                    if (process.name == DAEMON) == (death == Death::Daemon) {
                        let _ = Pid::from_raw(process.pid).map(|pid| kill_process(pid, Signal::KILL));
                    }
                }
                self.wait_for_load()?;
                self.verify()?;
                self.start_load()?;
            }
        }
        Ok(())
    }

    /// Returns how many steps the load has done since the last call.
    ///
    /// # Errors
    /// The load has ended though nothing died, or it does not get on.
    pub(super) fn steps(&mut self) -> anyhow::Result<u64> {
        let load = self.load.as_mut().context("there is no load")?;
        if let Some(status) = load.try_wait()? {
            bail!("{}: the load ended with {status}: {}", self.kind.name(), self.said());
        }
        let text = fs::read_to_string(self.dir.join("share").join(PROGRESS)).unwrap_or_default();
        let recorded = text.trim().parse().unwrap_or(self.recorded);
        let done = if recorded < self.recorded { recorded } else { recorded - self.recorded };
        if done > 0 {
            self.asked_at = Instant::now();
        } else if self.asked_at.elapsed() > PATIENCE {
            bail!("{}: the load does not get on: {}", self.kind.name(), self.said());
        }
        self.recorded = recorded;
        Ok(done)
    }

    /// What the daemon uses, or daemons.
    pub(super) fn usage(&self) -> Usage {
        let root = match self.kind {
            Kind::Mount | Kind::Library => self.daemon.as_ref(),
            Kind::Machine => self.load.as_ref(),
        };
        let mut usage = Usage::default();
        for process in root.map(|root| processes::tree(root.id())).unwrap_or_default() {
            if process.name == DAEMON {
                usage += process.usage();
            }
        }
        usage
    }

    /// Ends the rig and checks its files. Errors: they are wrong.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.stop();
        self.verify()
    }

    /// Checks the files on the host: whole blocks, and none older than it was.
    fn verify(&mut self) -> anyhow::Result<()> {
        let sum =
            load::verify(&self.dir.join("share")).with_context(|| format!("{}: the host's files", self.kind.name()))?;
        anyhow::ensure!(
            sum >= self.sum,
            "{}: blocks went back: {} generations, then {sum}",
            self.kind.name(),
            self.sum
        );
        self.sum = sum;
        Ok(())
    }

    fn start_daemon(&mut self) -> anyhow::Result<()> {
        if self.kind == Kind::Machine {
            return Ok(());
        }
        let socket = self.dir.join("socket");
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(&self.programs.transomd);
        command.arg("--socket-path").arg(&socket).arg("--shared-dir").arg(self.dir.join("share"));
        command.args(["--keep-serving", "--xattr", "--posix-lock", "--flock", "--log-level=error"]);
        if self.kind == Kind::Library {
            command.args(["--tag=share", "--dax-window=16M", "--dax-policy=always", "--front-end=alioth"]);
        }
        command.stdin(Stdio::null()).process_group(0).stdout(Stdio::null());
        let mut child = command.stderr(self.log("daemon")?).spawn()?;
        wait_until("the daemon listens", || match child.try_wait()? {
            // A process of the one before has not ended yet.
            Some(_) if self.said().contains("is in use by process") => {
                child = command.stderr(self.log("daemon")?).spawn()?;
                Ok(false)
            }
            Some(status) => bail!("the daemon ended with {status}: {}", self.said()),
            None => Ok(socket.exists()),
        })?;
        self.daemon = Some(child);
        Ok(())
    }

    fn start_front_end(&mut self) -> anyhow::Result<()> {
        if self.kind != Kind::Mount {
            return Ok(());
        }
        let at = self.dir.join("at");
        let mut command = Command::new(&self.programs.transom);
        command.args(["mount", "-f", "-o", "reconnect=120"]).arg("--socket").arg(self.dir.join("socket")).arg(&at);
        let mut child = command
            .stdin(Stdio::null())
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(self.log("front-end")?)
            .spawn()?;
        wait_until("the share is mounted", || match child.try_wait()? {
            Some(status) => bail!("transom mount ended with {status}: {}", self.said()),
            None => Ok(is_mounted(&at)),
        })?;
        self.front_end = Some(child);
        Ok(())
    }

    fn start_load(&mut self) -> anyhow::Result<()> {
        self.seed = self.seed.wrapping_add(1);
        let mut command = Command::new(std::env::current_exe().context("finding this executable")?);
        command.arg(INSIDE);
        match self.kind {
            Kind::Mount => command.arg("soak-load").arg(self.dir.join("at")),
            Kind::Machine => command.arg("soak-machine").arg(self.dir.join("share")),
            Kind::Library => command.arg("soak-library").arg(self.dir.join("socket")),
        };
        command
            .arg(self.seed.to_string())
            .stdin(Stdio::null())
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(self.log("load")?);
        self.load = Some(command.spawn().context("starting the load")?);
        self.asked_at = Instant::now();
        Ok(())
    }

    /// Kills the front end, or the load if that is the front end; the load ends by itself or is killed.
    fn end_front_end(&mut self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Mount => {
                end(&mut self.front_end);
                let load = self.wait_for_load();
                let _ = unmount(self.dir.join("at"), UnmountFlags::DETACH);
                load
            }
            Kind::Library => {
                // The load may have seen the daemon's end already, but nothing that is wrong.
                let status = self.load.as_mut().map(Child::try_wait).transpose()?.flatten();
                end(&mut self.load);
                match status.and_then(|status| status.code()) {
                    Some(code) if code == i32::from(IS_WRONG) => bail!("library: {}", self.said()),
                    _ => Ok(()),
                }
            }
            Kind::Machine => Ok(()),
        }
    }

    /// Waits for a load whose front end or daemon has died. Errors: it says that data is wrong, or does not end.
    fn wait_for_load(&mut self) -> anyhow::Result<()> {
        let Some(mut load) = self.load.take() else { return Ok(()) };
        let mut status = None;
        let ended = wait_until("the load ends", || {
            status = load.try_wait()?;
            Ok(status.is_some())
        });
        if let Err(error) = ended {
            end(&mut Some(load));
            return Err(error.context(self.kind.name()));
        }
        // A process without a code was killed: a load by SIGBUS, when it reads a mapping that nobody serves any more.
        let is_cut_off = status.and_then(|status| status.code()).is_none_or(|code| code == i32::from(IS_CUT_OFF));
        // A machine's load says it through the machine.
        anyhow::ensure!(
            is_cut_off && !self.said().contains(WRONG),
            "{}: the load ended with {status:?}: {}",
            self.kind.name(),
            self.said()
        );
        Ok(())
    }

    fn stop(&mut self) {
        if self.kind == Kind::Machine {
            // It ends its machine and removes what it has made.
            if let Some(load) = &mut self.load {
                let _ = Pid::from_raw(load.id().cast_signed()).map(|pid| kill_process(pid, Signal::TERM));
                let _ = wait_until("the machine ends", || Ok(load.try_wait()?.is_some()));
            }
        }
        for child in [&mut self.load, &mut self.front_end] {
            end_all(child);
        }
        if self.kind == Kind::Mount {
            let _ = unmount(self.dir.join("at"), UnmountFlags::DETACH);
        }
        end_all(&mut self.daemon);
    }

    /// A file for the messages of a part.
    fn log(&self, part: &str) -> anyhow::Result<Stdio> {
        let path = self.dir.join(format!("{part}.log"));
        Ok(File::create(&path).with_context(|| path.display().to_string())?.into())
    }

    /// The last messages of all parts.
    fn said(&self) -> String {
        let parts = ["daemon", "front-end", "load"].map(|part| {
            let text = fs::read(self.dir.join(format!("{part}.log"))).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().rev().take(3).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("; ")
        });
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// As [`end`], and waits for the ends of the processes that the child has started: they follow it, a moment later.
fn end_all(child: &mut Option<Child>) {
    let root = child.as_ref().map(|child| processes::tree(child.id())).unwrap_or_default();
    let tree: Vec<_> = root.iter().filter_map(Process::watch).collect();
    end(child);
    processes::wait_for_ends(&tree, PATIENCE);
}

fn is_mounted(at: &Path) -> bool {
    let at = at.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&at))
}

/// Looks again and again until `is_so`. Errors: it is not within [`PATIENCE`], or looking fails.
fn wait_until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        anyhow::ensure!(Instant::now() < deadline, "waiting until {what}: not after {} s", PATIENCE.as_secs());
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}
