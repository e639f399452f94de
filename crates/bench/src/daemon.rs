//! The daemons to compare: how to find and start them.
//!
//! The socket listens before the daemon starts and is inherited, so that nobody has to wait for it to appear.

use std::{
    env,
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
use rustix::process::geteuid;
use transom_vm::{CacheMode, Supervised, packages::Packages, peer};

use crate::process::{Placement, on_core};

/// A daemon to measure: any program with virtiofsd's command line, or a running one.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in the tables.
    pub name: String,
    /// How to reach it.
    pub source: Source,
    /// Arguments in addition to those that every daemon gets.
    pub args: Vec<String>,
    /// Size of its window in bytes, used for all files; only guests under QEMU have one.
    pub window_len: Option<u64>,
    /// Mount options, if not the defaults.
    pub mount: Option<transom_mount::Options>,
    /// The daemon does not offer `VHOST_USER_PROTOCOL_F_CONFIG`.
    pub is_without_config: bool,
}

/// Lines of a daemon's log that an error includes.
const LOG_LINES_MAX: usize = 20;

/// How to reach a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program to start.
    Program(PathBuf),
    /// The socket of a running daemon that waits for a front end.
    Socket(PathBuf),
}

/// A daemon as specified on the command line: `[NAME=]PROGRAM [ARGUMENT…]`, words separated by spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    name: Option<String>,
    program: Program,
    args: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Program {
    Transomd,
    Virtiofsd,
    VirtiofsdC,
    At(PathBuf),
}

impl FromStr for Wanted {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { bail!("a daemon without a program") };
        let (name, program) = match first.split_once('=') {
            Some((name, program)) => (Some(name.to_owned()), program),
            None => (None, first),
        };
        let program = match program {
            "transomd" => Program::Transomd,
            "virtiofsd" => Program::Virtiofsd,
            "virtiofsd-c" => Program::VirtiofsdC,
            path => {
                ensure!(
                    Path::new(path).is_file(),
                    "there is no program {path}; known by name are transomd, virtiofsd and virtiofsd-c"
                );
                Program::At(path.into())
            }
        };
        Ok(Self { name, program, args: words.map(str::to_owned).collect() })
    }
}

impl Wanted {
    /// Returns the default daemons.
    pub fn usual() -> Vec<Self> {
        [Program::Transomd, Program::Virtiofsd].map(|program| Self { name: None, program, args: Vec::new() }).into()
    }

    /// Finds the daemon, fetching or building it if needed.
    ///
    /// # Errors
    /// If it is missing and cannot be obtained.
    pub fn find(&self, packages: &Packages<'_>) -> anyhow::Result<Candidate> {
        let (usual_name, program) = match &self.program {
            Program::Transomd => ("transomd".to_owned(), transomd()?),
            Program::Virtiofsd => ("virtiofsd".to_owned(), peer::virtiofsd(packages, peer::Build::Release)?),
            Program::VirtiofsdC => ("virtiofsd-c".to_owned(), peer::c_virtiofsd(packages)?),
            Program::At(path) => {
                let name = path.file_name().context("a daemon's program must be a file")?;
                (name.to_string_lossy().into_owned(), path.clone())
            }
        };
        Ok(Candidate {
            name: self.name.clone().unwrap_or(usual_name),
            source: Source::Program(program),
            args: self.args.clone(),
            window_len: None,
            mount: None,
            is_without_config: self.program == Program::VirtiofsdC,
        })
    }
}

/// Returns the transomd next to this program, or on the path.
fn transomd() -> anyhow::Result<PathBuf> {
    let beside = env::current_exe()?.with_file_name("transomd");
    let path = env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(beside.clone()).chain(env::split_paths(&path).map(|dir| dir.join("transomd")));
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!("there is no transomd at {beside:?} or on the path; build it (make), or select one with --daemon")
    })
}

impl Candidate {
    /// Creates a candidate for the program at `program`, without arguments of its own.
    pub fn named(name: &str, program: &Path) -> anyhow::Result<Self> {
        ensure!(program.is_file(), "{name}: there is no program {}", program.display());
        let source = Source::Program(program.to_owned());
        Ok(Self::with_source(name.to_owned(), source))
    }

    /// Creates a candidate for the daemon that waits for a front end at `socket`.
    pub fn at_socket(name: String, socket: PathBuf) -> Self {
        Self::with_source(name, Source::Socket(socket))
    }

    fn with_source(name: String, source: Source) -> Self {
        Self { name, source, args: Vec::new(), window_len: None, mount: None, is_without_config: false }
    }

    /// Returns the same candidate, mounted with `options` of `transom mount -o`, which also become its name. A transomd
    /// gets the matching arguments.
    ///
    /// # Errors
    /// If an option is unknown.
    pub fn with_mount_options(&self, options: &str) -> anyhow::Result<Self> {
        let mut parsed = transom_mount::Options::default();
        parsed.parse(options)?;
        let is_told = matches!(&self.source, Source::Program(program) if program.ends_with("transomd"));
        let told = if is_told { parsed.daemon_args() } else { Vec::new() };
        let told = told.into_iter().filter_map(|word| word.into_string().ok());
        let args = told.chain(self.args.iter().cloned()).collect();
        Ok(Self { name: options.to_owned(), args, mount: Some(parsed), ..self.clone() })
    }

    /// Returns the program.
    ///
    /// # Errors
    /// If the daemon is already running.
    pub fn program(&self) -> anyhow::Result<&Path> {
        match &self.source {
            Source::Program(program) => Ok(program),
            Source::Socket(socket) => {
                bail!(
                    "{}: the daemon at {socket:?} is already running; this measurement has to start a program",
                    self.name
                )
            }
        }
    }

    /// Returns the version that the daemon reports, or why it reports none.
    pub fn version(&self) -> String {
        let Source::Program(program) = &self.source else { return "runs already".to_owned() };
        match Command::new(program).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("silent").to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// A running daemon that waits for a front end.
pub struct Daemon {
    /// Its process.
    pub process: Supervised,
    /// The socket that it listens on.
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
        let mut command = Command::new(candidate.program()?);
        command.arg(format!("--fd={}", listener.as_raw_fd())).arg("--shared-dir").arg(shared);
        command.args(["--cache", cache.as_str()]);
        if !geteuid().is_root() {
            // The namespace sandbox needs privileges that a user does not have on every system.
            command.args(["--sandbox", "none"]);
        }
        command.args(&candidate.args);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = on_core(placement.daemon_core(), || Supervised::spawn(command, vec![listener]))??;
        Ok(Self { process, socket, log })
    }

    /// Returns the end of the daemon's log, or "nothing".
    pub fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.trim_end().lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
        if last.is_empty() { "nothing".to_owned() } else { last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_has_a_name_a_program_and_arguments() {
        let wanted: Wanted = "pool=virtiofsd --thread-pool-size=4 --xattr".parse().unwrap();
        assert_eq!((wanted.name.as_deref(), wanted.program), (Some("pool"), Program::Virtiofsd));
        assert_eq!(wanted.args, ["--thread-pool-size=4", "--xattr"]);
        let error = "/nonexistent/daemon".parse::<Wanted>().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/daemon") && error.contains("virtiofsd-c"), "{error}");
    }
}
