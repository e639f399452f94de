//! `transom fs`: looks into a share, and changes it, without a mount, a virtual machine or root.
//!
//! This process is the guest: it speaks virtio-fs to a daemon, by its socket, or one that it starts for a directory.
//! Each group of commands is a file; [`share`] is where they meet the share, [`text`] how things are written.

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
use clap::{Args, Subcommand};
use share::SharedFiles;
use transom_guest::dax::Dax;

use crate::source::Source;

/// How many directories deep a command goes: how deep they are is the server's word.
const DEPTH_MAX: usize = 512;

/// What gives a daemon a window for [`Fs::dax`]: large enough that a copy's ranges need no others to go. This process
/// maps files beyond their ends, as the front end of that name does.
const WINDOW: [&str; 7] = ["--tag", "share", "--dax-window", "256M", "--dax-policy", "always", "--front-end=alioth"];

/// What a shell gives for a command that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Look into a share, and change it, without mounting it.
///
/// This process is the guest of a virtio-fs daemon: one that listens at a socket, or one that it starts for a directory
/// and ends again. Paths are those of the share, from its root; names may be any bytes.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Fs {
    #[command(flatten)]
    from: Source,

    /// An argument for the daemon, as it is; may be given several times
    #[arg(long = "daemon-arg", value_name = "ARG", allow_hyphen_values = true, conflicts_with = "socket")]
    daemon_args: Vec<OsString>,

    /// Copy file data by way of the daemon's DAX window, from and to the host's page cache, without a request for each
    /// piece
    ///
    /// A daemon that is started gets a window, for which it has to be transomd; one that listens has to have been given
    /// one.
    #[arg(long)]
    dax: bool,

    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  transom fs --shared-dir /srv/share ls -l
      What a guest of that share sees, with the owners that it sees.
  transom fs --socket /run/share.sock tree docs
      The share of a daemon that is already there and has no guest yet.
  transom fs -d /srv/share --daemon-arg=--translate-uid=map:0:1000:1 stat notes.txt
      What a translation of ids comes to.
  transom fs -d /srv/share --daemon /usr/libexec/virtiofsd cat notes.txt
      The same through another daemon.
  transom fs -d /srv/share cp -r :photos/2026 .
  transom fs -d /srv/share cp disk.img :images/
      Out of the share, and into it: a colon stands before paths of the share.
  tar c . | transom fs -d /srv/share write backup.tar
  transom fs -d /srv/share --dax cat disk.img | sha256sum
      Without a read request: the daemon maps the file into this process.

Exit status: 0; 1 if something failed, which standard error tells by path and reason; 2 for a wrong command line; 130
after Ctrl-C, when nothing is left half done.";

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

/// A command at work.
struct Task {
    share: SharedFiles,
    /// Set by SIGINT and SIGTERM.
    is_stopped: Arc<AtomicBool>,
    has_failed: bool,
}

/// Why a command ends early: a signal asked for it.
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
            // `transom fs … cat log | head -1`: the reader has what it wants.
            Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("transom: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    /// Tells whether something failed that was already told.
    fn run(self) -> Result<bool> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The first asks the command to clean up; a second one does not wait for that.
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
        let mount = self.from.builder(daemon_args)?.connect()?;
        if self.dax && mount.window().is_none() {
            anyhow::bail!("this daemon has no DAX window: --dax-window and --tag give transomd one");
        }
        Ok(SharedFiles::new(&mount, if self.dax { Dax::Always } else { Dax::Never })?)
    }
}

impl Task {
    /// Tells of a path that a command could not do its work on; it goes on with the next.
    fn fail(&mut self, error: &anyhow::Error) {
        self.has_failed = true;
        eprintln!("transom: {error:#}");
    }

    /// Runs `work` for each of `paths`, and goes on where it fails.
    fn each(
        &mut self,
        paths: &[PathBuf],
        mut work: impl FnMut(&mut Self, &std::path::Path) -> Result<()>,
    ) -> Result<()> {
        for path in paths {
            match work(self, path).with_context(|| text::path_for_message(path)) {
                Err(error) if error.is::<Interrupted>() || is_broken_pipe(&error) => return Err(error),
                Err(error) => self.fail(&error),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn stop_if_asked(&self) -> Result<()> {
        if self.is_stopped.load(std::sync::atomic::Ordering::Relaxed) { anyhow::bail!(Interrupted) } else { Ok(()) }
    }
}

/// Whether the reader of our output is gone.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
