//! The daemons that are compared: what to start, with which options, and where.
//!
//! The socket listens before the daemon starts and is inherited, so that nobody waits for it to appear.

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

/// A daemon to measure: any program with virtiofsd's command line, or one that runs already.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name in the tables.
    pub name: String,
    /// Where it is.
    pub source: Source,
    /// Arguments beside the ones that every daemon gets.
    pub args: Vec<String>,
    /// Bytes of its window, for all files; only guests under QEMU have one.
    pub window_len: Option<u64>,
    /// How it is mounted, where not as usual.
    pub mount: Option<transom_mount::Options>,
    /// It does not offer `VHOST_USER_PROTOCOL_F_CONFIG`.
    pub is_without_config: bool,
}

/// Of a daemon's log, in an error.
const LOG_LINES_MAX: usize = 20;

/// Where a daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program to start.
    Program(PathBuf),
    /// The socket of one that runs and waits for a front end.
    Socket(PathBuf),
}

/// A daemon as the command line names it: `[NAME=]PROGRAM [ARGUMENT…]`, words separated by blanks.
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
    /// The usual ones.
    pub fn usual() -> Vec<Self> {
        [Program::Transomd, Program::Virtiofsd].map(|program| Self { name: None, program, args: Vec::new() }).into()
    }

    /// Finds the daemon, or has it fetched or built.
    ///
    /// Errors: it is not there and cannot be got.
    pub fn find(&self, packages: &Packages<'_>) -> anyhow::Result<Candidate> {
        let (usual_name, program) = match &self.program {
            Program::Transomd => ("transomd".to_owned(), transomd()?),
            Program::Virtiofsd => ("virtiofsd".to_owned(), peer::virtiofsd(packages)?),
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

/// transomd beside this program, or on the path.
fn transomd() -> anyhow::Result<PathBuf> {
    let beside = env::current_exe()?.with_file_name("transomd");
    let path = env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(beside.clone()).chain(env::split_paths(&path).map(|dir| dir.join("transomd")));
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!("there is no transomd, neither {beside:?} nor on the path; build it (make), or name one with --daemon")
    })
}

impl Candidate {
    /// The daemon at `program`, without arguments of its own.
    pub fn named(name: &str, program: &Path) -> anyhow::Result<Self> {
        ensure!(program.is_file(), "{name}: there is no program {}", program.display());
        let source = Source::Program(program.to_owned());
        Ok(Self::with_source(name.to_owned(), source))
    }

    /// The daemon that waits for a front end at `socket`.
    pub fn at_socket(name: String, socket: PathBuf) -> Self {
        Self::with_source(name, Source::Socket(socket))
    }

    fn with_source(name: String, source: Source) -> Self {
        Self { name, source, args: Vec::new(), window_len: None, mount: None, is_without_config: false }
    }

    /// The same, mounted with `options` as `transom mount -o` takes them, which are its name. A transomd is told of
    /// them.
    ///
    /// Errors: one of them is not known.
    pub fn with_mount_options(&self, options: &str) -> anyhow::Result<Self> {
        let mut parsed = transom_mount::Options::default();
        parsed.parse(options)?;
        let is_told = matches!(&self.source, Source::Program(program) if program.ends_with("transomd"));
        let told = if is_told { parsed.daemon_args() } else { Vec::new() };
        let told = told.into_iter().filter_map(|word| word.into_string().ok());
        let args = told.chain(self.args.iter().cloned()).collect();
        Ok(Self { name: options.to_owned(), args, mount: Some(parsed), ..self.clone() })
    }

    /// Its program. Errors: it runs already.
    pub fn program(&self) -> anyhow::Result<&Path> {
        match &self.source {
            Source::Program(program) => Ok(program),
            Source::Socket(socket) => {
                bail!("{}: the daemon at {socket:?} runs already; a program is needed", self.name)
            }
        }
    }

    /// What the daemon says about its version, or why it does not.
    pub fn version(&self) -> String {
        let Source::Program(program) = &self.source else { return "runs already".to_owned() };
        match Command::new(program).arg("--version").output() {
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
        let mut command = Command::new(candidate.program()?);
        command.arg(format!("--fd={}", listener.as_raw_fd())).arg("--shared-dir").arg(shared);
        command.args(["--cache", cache.as_str()]);
        if !geteuid().is_root() {
            // The sandbox of namespaces needs what not every system gives a user.
            command.args(["--sandbox", "none"]);
        }
        command.args(&candidate.args);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = on_core(placement.daemon_core(), || Supervised::spawn(command, vec![listener]))??;
        Ok(Self { process, socket, log })
    }

    /// The end of what it wrote; "nothing" if so.
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
