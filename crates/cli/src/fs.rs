//! `transom fs`: reads and changes a share without a mount, a virtual machine or root.
//!
//! This process is the guest: it speaks virtio-fs to a running daemon, or to one that it starts for a directory. Each
//! group of commands has its own module; [`share`] gives them access to the share, and [`text`] formats their output.

mod change;
mod copy;
mod cp;
mod list;
mod search;
mod share;
mod show;
mod text;
mod tree;
mod usage;

use std::{
    ffi::OsString,
    fmt, io,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use share::SharedFiles;
use transom_guest::{cache::CacheMode, dax::Dax};

use crate::{source::Source, tell::path_in_line};

/// Maximum depth of directories that a command descends into, because the server is not trusted to report a finite
/// tree.
const DEPTH_MAX: usize = 512;

/// Arguments that give transomd a window for [`Fs::dax`], large enough that the ranges of one copy need not be evicted.
/// This process maps files past their ends, as the front end alioth does.
const WINDOW: [&str; 7] = ["--tag", "share", "--dax-window", "256M", "--dax-policy", "always", "--front-end=alioth"];

/// Exit status that a shell reports for a command ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Read and change the files of a share without mounting it
///
/// This process acts as the guest of a virtio-fs daemon: one that listens at a socket, or one that it starts for a
/// directory and stops again. Paths are relative to the root of the share; names may contain any bytes.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Fs {
    #[command(flatten)]
    from: Source,

    /// An argument to pass on to the daemon; may be repeated
    #[arg(long = "daemon-arg", value_name = "ARG", allow_hyphen_values = true, conflicts_with = "socket")]
    daemon_args: Vec<OsString>,

    /// Copy file data through the daemon's DAX window, directly from and to the host's page cache
    ///
    /// With --shared-dir, the daemon is started with a window and must be transomd. With --socket, the daemon must
    /// already have one.
    #[arg(long)]
    dax: bool,

    /// How long this process uses what it has read of names, attributes and data
    #[arg(long, value_enum, default_value_t = Caching::Auto)]
    cache: Caching,

    #[command(subcommand)]
    command: Command,
}

/// The values of `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Caching {
    /// Not at all: every access asks the daemon
    Never,
    /// As long as the daemon says
    Auto,
    /// Until this process changes it: for a directory that nobody else changes
    Always,
    /// Until a guest of the daemon's coherence group changes it
    Shared,
}

impl From<Caching> for CacheMode {
    fn from(caching: Caching) -> Self {
        match caching {
            Caching::Never => Self::None,
            Caching::Auto => Self::Auto,
            Caching::Always => Self::Always,
            Caching::Shared => Self::Shared,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  transom fs --shared-dir /srv/share ls -l
      List the share as a guest sees it, including the owners.
  transom fs --socket /run/share.sock tree docs
      Use the share of a running daemon that has no guest yet.
  transom fs -d /srv/share --daemon-arg=--translate-uid=map:0:1000:1 stat notes.txt
      Check the effect of an id translation.
  transom fs -d /srv/share --daemon /usr/libexec/virtiofsd cat notes.txt
      Use another daemon.
  transom fs -d /srv/share cp -r :photos/2026 .
  transom fs -d /srv/share cp disk.img :images/
      Copy out of the share, and into it: paths of the share begin with a colon.
  tar c . | transom fs -d /srv/share write backup.tar
  transom fs -d /srv/share --dax cat disk.img | sha256sum
      Read a file without read requests: the daemon maps it into this process.
  transom fs -d /srv/share --coherence-group build --cache shared find . -name '*.o'
      Look at each directory once, and see what other daemons of the group change.

Exit status: 0 on success; 1 if something failed, with path and reason on standard error; 2 for a usage error; 130
after Ctrl-C, which leaves no partial files.";

#[derive(Debug, Subcommand)]
enum Command {
    Ls(list::Ls),
    Tree(list::Tree),
    Cat(show::Cat),
    Stat(show::Stat),
    Find(search::Find),
    Du(usage::Du),
    Df(usage::Df),
    Cp(cp::Cp),
    Mkdir(change::Mkdir),
    Rm(change::Rm),
    Mv(change::Mv),
    Ln(change::Ln),
    Touch(change::Touch),
    Write(change::Write),
}

/// A running command.
struct Task {
    share: SharedFiles,
    /// Set by SIGINT and SIGTERM.
    is_stopped: Arc<AtomicBool>,
    has_failed: bool,
}

/// The error of a command that was stopped by a signal.
#[derive(Debug)]
struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Fs {
    pub(crate) fn execute(self) -> ExitCode {
        match self.run() {
            Ok(false) => ExitCode::SUCCESS,
            Ok(true) => ExitCode::FAILURE,
            Err(error) if error.is::<Interrupted>() => ExitCode::from(INTERRUPTED),
            // As in `transom fs … cat log | head -1`: the reader needs no more.
            Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("transom: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    /// Runs the command, and returns whether something failed that was already reported.
    fn run(self) -> Result<bool> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The first signal lets the command clean up; a second one ends it at once.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_stopped))?;
            signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
        }
        let mut task = Task { share: self.share()?, is_stopped, has_failed: false };
        match self.command {
            Command::Ls(ls) => ls.run(&mut task),
            Command::Tree(tree) => tree.run(&mut task),
            Command::Cat(cat) => cat.run(&mut task),
            Command::Stat(stat) => stat.run(&mut task),
            Command::Find(find) => find.run(&mut task),
            Command::Du(du) => du.run(&mut task),
            Command::Df(df) => df.run(&mut task),
            Command::Cp(cp) => cp.run(&mut task),
            Command::Mkdir(mkdir) => mkdir.run(&mut task),
            Command::Rm(rm) => rm.run(&mut task),
            Command::Mv(mv) => mv.run(&mut task),
            Command::Ln(ln) => ln.run(&mut task),
            Command::Touch(touch) => touch.run(&mut task),
            Command::Write(write) => write.run(&mut task),
        }?;
        task.share.end();
        Ok(task.has_failed)
    }

    fn share(&self) -> Result<SharedFiles> {
        let mut daemon_args = self.daemon_args.clone();
        if self.dax && self.from.starts_transomd() {
            daemon_args.extend(WINDOW.map(Into::into));
        }
        if let Some(file) = self.from.shared_file() {
            anyhow::bail!("{} is a file: share the directory that contains it", file.display());
        }
        let builder = self.from.builder(daemon_args)?;
        if let Some(warning) = self.from.warning() {
            eprintln!("transom: {warning}");
        }
        let mount = builder.connect()?;
        if self.dax && mount.window().is_none() {
            anyhow::bail!("this daemon has no DAX window: start transomd with --dax-window and --tag");
        }
        if self.cache == Caching::Shared && mount.versions().is_none() {
            anyhow::bail!(
                "--cache=shared needs a daemon in a coherence group: give --coherence-group, or start transomd with it \
                 and with --front-end=alioth"
            );
        }
        Ok(SharedFiles::new(&mount, self.cache.into(), if self.dax { Dax::Always } else { Dax::Never })?)
    }
}

impl Task {
    /// Reports an error for one path; the command continues with the next.
    fn fail(&mut self, error: &anyhow::Error) {
        self.has_failed = true;
        eprintln!("transom: {error:#}");
    }

    /// Runs `work` for each of `paths`, and reports errors without stopping at them.
    fn each(
        &mut self,
        paths: &[PathBuf],
        mut work: impl FnMut(&mut Self, &std::path::Path) -> Result<()>,
    ) -> Result<()> {
        for path in paths {
            match work(self, path).with_context(|| path_in_line(path)) {
                Err(error) if error.is::<Interrupted>() || is_broken_pipe(&error) => return Err(error),
                Err(error) => self.fail(&error),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn check_interrupted(&self) -> Result<()> {
        if self.is_stopped.load(std::sync::atomic::Ordering::Relaxed) { anyhow::bail!(Interrupted) } else { Ok(()) }
    }
}

/// Returns whether the reader of our output is gone.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
