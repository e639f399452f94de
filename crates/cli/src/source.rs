//! Where a share comes from: what `transom fs` and `transom mount` ask for alike.

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

/// A daemon that listens, or one that is started.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("from").required(true).args(["socket", "shared_dir"]))]
pub(crate) struct Source {
    /// The socket of a daemon that waits for a front end: of transomd, virtiofsd, or another for vhost-user-fs
    #[arg(long, short = 's', value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Start a daemon for this directory
    #[arg(long, short = 'd', value_name = "DIR")]
    shared_dir: Option<PathBuf>,

    /// The daemon to start; it takes virtiofsd's options [default: transomd beside this program]
    #[arg(long, value_name = "PROGRAM", env = "TRANSOM_DAEMON", conflicts_with = "socket")]
    daemon: Option<PathBuf>,
}

impl Source {
    /// Whether the daemon is one of ours, which is started with what we like.
    pub(crate) fn starts_transomd(&self) -> bool {
        let name = self.daemon.as_deref().and_then(Path::file_name);
        self.socket.is_none() && name.is_none_or(|name| name == "transomd")
    }

    /// A daemon that is started gets `daemon_args` too.
    pub(crate) fn builder(&self, daemon_args: Vec<OsString>) -> Result<Builder> {
        match (&self.socket, &self.shared_dir) {
            (Some(socket), _) => Ok(Share::builder().socket(socket)),
            (None, Some(dir)) => Ok(directory(dir, self.daemon.as_deref(), daemon_args)),
            (None, None) => anyhow::bail!("neither --socket nor --shared-dir"),
        }
    }
}

/// A directory, by a daemon that is started for it: transomd where none is named.
pub(crate) fn directory(dir: &Path, daemon: Option<&Path>, args: Vec<OsString>) -> Builder {
    let mut program = daemon.map_or_else(Program::transomd, Program::new);
    program.args = args;
    Share::builder().shared_dir(dir).daemon(program)
}
