//! The daemons that are compared: what to start, with which options, and where.
//!
//! The socket listens before the daemon starts and is inherited, so that nobody waits for it to appear.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
};

use anyhow::{Context, bail, ensure};
use transom_vm::{CacheMode, Supervised};

use crate::process::{Placement, on_core};

/// A daemon to measure: any program with virtiofsd's command line.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in the tables.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Arguments beside the ones that every daemon gets.
    pub args: Vec<String>,
    /// Bytes of its window, for all files; only guests under QEMU have one.
    pub window_len: Option<u64>,
}

impl FromStr for Candidate {
    type Err = anyhow::Error;

    /// `[NAME=]PROGRAM [ARGUMENT…]`, words separated by blanks.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { bail!("a daemon without a program") };
        let (name, program) = match first.split_once('=') {
            Some((name, program)) => (name.to_owned(), PathBuf::from(program)),
            None => {
                let program = PathBuf::from(first);
                let name = program.file_name().context("a daemon's program must be a file")?;
                (name.to_string_lossy().into_owned(), program)
            }
        };
        Ok(Self { args: words.map(str::to_owned).collect(), ..Self::named(&name, &program)? })
    }
}

impl Candidate {
    /// The daemon at `program`, without arguments of its own.
    pub fn named(name: &str, program: &Path) -> anyhow::Result<Self> {
        ensure!(program.is_file(), "{name}: there is no program {}", program.display());
        Ok(Self { name: name.to_owned(), program: program.to_owned(), args: Vec::new(), window_len: None })
    }

    /// What the daemon says about its version, or why it does not.
    pub fn version(&self) -> String {
        match Command::new(&self.program).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("silent").to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// A daemon that runs and waits for a front end.
pub struct Daemon {
    /// Its process.
    pub process: Supervised,
    /// Where it listens.
    pub socket: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts `candidate` for `shared`, with its socket and its log in `dir`.
    pub fn start(
        candidate: &Candidate,
        shared: &Path,
        cache: CacheMode,
        placement: Placement,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let socket = dir.join("daemon.sock");
        let listener: OwnedFd = UnixListener::bind(&socket).with_context(|| format!("listening at {socket:?}"))?.into();
        let log = dir.join("daemon.log");
        let output = File::create(&log)?;
        let mut command = Command::new(&candidate.program);
        command.arg(format!("--fd={}", listener.as_raw_fd())).arg("--shared-dir").arg(shared);
        command.args(["--cache", cache.as_str()]).args(&candidate.args);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = on_core(placement.daemon_core(), || Supervised::spawn(command, vec![listener]))??;
        Ok(Self { process, socket, log })
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
