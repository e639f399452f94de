//! `transom agent`: becomes `transom-agent`.

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

use clap::Args;

/// Replay changes of the host in the shares of this machine, a guest
///
/// Starts `transom-agent`, which has to be in this program's directory; it can also be installed alone. Needs root, and
/// shares whose daemons announce changes (transomd --events). Runs until it is stopped.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// The mount points of shares [default: all virtiofs mounts whose daemons announce changes]
    #[arg(value_name = "MOUNT")]
    mounts: Vec<PathBuf>,
}

impl Agent {
    /// Returns only if the program cannot be started.
    pub(crate) fn execute(self) -> ExitCode {
        let error = self.start();
        eprintln!("transom: cannot start transom-agent: {error}");
        ExitCode::FAILURE
    }

    fn start(self) -> io::Error {
        let program = match env::current_exe() {
            Ok(this) => this.with_file_name("transom-agent"),
            Err(error) => return error,
        };
        if !program.is_file() {
            return io::Error::new(io::ErrorKind::NotFound, format!("{} is not installed", program.display()));
        }
        // A path that begins with a hyphen is no option.
        let mounts = self.mounts.into_iter().map(|mount| match mount.is_relative() {
            true => PathBuf::from(".").join(mount),
            false => mount,
        });
        Command::new(program).args(mounts).exec()
    }
}
