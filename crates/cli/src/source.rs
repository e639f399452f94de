//! The options of `transom fs` and `transom mount` that say which daemon provides the share.

mod socket;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::{ArgGroup, Args};
use transom_user::{
    daemon::Program,
    share::{Builder, Share},
};

/// A daemon that listens at a socket, or one to start.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("from").required(true).args(["socket", "shared_dir"]))]
pub(crate) struct Source {
    /// The socket of a running daemon (transomd, virtiofsd or another vhost-user-fs daemon) that has no front end yet
    #[arg(long, short = 's', value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Start a daemon that shares this directory
    #[arg(long, short = 'd', value_name = "DIR")]
    shared_dir: Option<PathBuf>,

    /// The daemon to start, which must accept virtiofsd's options [default: transomd in this program's directory]
    #[arg(long, value_name = "PROGRAM", env = "TRANSOM_DAEMON", conflicts_with = "socket")]
    daemon: Option<PathBuf>,

    /// Have the daemon join GROUP, whose daemons tell each other's guests what has changed
    ///
    /// GROUP is a name, or a directory with a '/' in its path; see transomd --help. The daemon must be transomd.
    #[arg(long, value_name = "GROUP", conflicts_with = "socket")]
    coherence_group: Option<OsString>,
}

impl Source {
    /// Returns whether a transomd is started, which accepts our own options.
    pub(crate) fn starts_transomd(&self) -> bool {
        let name = self.daemon.as_deref().and_then(Path::file_name);
        self.socket.is_none() && name.is_none_or(|name| name == "transomd")
    }

    /// Returns whether the daemon that is started joins a coherence group.
    pub(crate) fn is_in_group(&self) -> bool {
        self.coherence_group.is_some()
    }

    /// Returns a warning if the daemon at the socket ends when this process leaves it.
    pub(crate) fn warning(&self) -> Option<String> {
        let socket = self.socket.as_deref().filter(|socket| socket::ends_with_front_end(socket))?;
        Some(format!(
            "the daemon at {} exits when this command ends; one that was started with --keep-serving waits for the \
             next",
            socket.display()
        ))
    }

    /// Returns what is to be shared if it is a file.
    pub(crate) fn shared_file(&self) -> Option<&Path> {
        self.shared_dir.as_deref().filter(|path| path.is_file())
    }

    /// Returns a builder for the share; `daemon_args` go to a daemon that is started.
    pub(crate) fn builder(&self, daemon_args: Vec<OsString>) -> Result<Builder> {
        match (&self.socket, &self.shared_dir) {
            (Some(socket), _) if socket::is_in_use(socket) => anyhow::bail!(
                "another front end is connected to {}, and a daemon serves one at a time: wait until that one has \
                 left, or start a second daemon",
                socket.display()
            ),
            (Some(socket), _) => Ok(Share::builder().socket(socket)),
            (None, Some(dir)) => {
                let args = self.group_args().into_iter().chain(daemon_args).collect();
                Ok(directory(dir, self.daemon.as_deref(), args))
            }
            (None, None) => anyhow::bail!("either --socket or --shared-dir is required"),
        }
    }
}

impl Source {
    /// Returns the arguments of a daemon in a group. This process maps the version table for reading, as the front end
    /// alioth does; a later argument may name another front end.
    fn group_args(&self) -> Vec<OsString> {
        let Some(group) = &self.coherence_group else { return Vec::new() };
        vec!["--coherence-group".into(), group.clone(), "--front-end=alioth".into()]
    }
}

/// Returns a builder for a share of `dir`, served by `daemon` or by transomd.
pub(crate) fn directory(dir: &Path, daemon: Option<&Path>, args: Vec<OsString>) -> Builder {
    let mut program = daemon.map_or_else(Program::transomd, Program::new);
    program.args = args;
    Share::builder().shared_dir(dir).daemon(program)
}
