//! The messages in frames: between a command's caller and the agent, and between callers and the keeper.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::shares::ShareRequest;
use crate::{
    Share,
    protocol::{Size, Stream},
};

/// A command for a machine that is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// What runs.
    pub program: Program,
    /// The working directory, which must exist; by default that of the machine.
    pub directory: Option<PathBuf>,
    /// The numbers of the user and group; by default those of the machine.
    pub user: Option<(u32, u32)>,
    /// Variables added to the machine's environment.
    pub env: Vec<(OsString, OsString)>,
    /// The size of the command's terminal, if it gets one.
    pub(crate) terminal: Option<Size>,
}

impl Exec {
    /// Returns a command with what the machine has for the rest.
    pub fn new(command: Vec<OsString>) -> Self {
        Self { program: Program::Command(command), directory: None, user: None, env: Vec::new(), terminal: None }
    }
}

/// What runs in a machine that is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Program {
    /// A command and its arguments; empty for a shell.
    Command(Vec<OsString>),
    /// The agent's own program that packs and unpacks files, with its arguments.
    Archiver(Vec<OsString>),
}

/// The first message to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Asks for a [`Status`].
    Status,
    /// Starts a command. What follows are frames of [`ToCommand`] and standard input.
    Exec(Box<Exec>),
    /// Adds or removes a share. The answer is a [`ShareAnswer`](super::shares::ShareAnswer).
    Share {
        request: ShareRequest,
        /// How long the guest may take.
        timeout: Duration,
    },
    /// Ends the machine. The answer is a text of how it ended.
    Stop {
        /// Without waiting for the guest.
        is_forced: bool,
    },
}

/// To the agent, about one command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToCommand {
    Start(Box<Exec>),
    Resize(Size),
    Signal {
        number: i32,
    },
    /// These bytes of frames were passed on.
    Taken {
        stream: Stream,
        bytes: usize,
    },
    /// No one reads this stream any more.
    Unwanted(Stream),
    /// The caller has gone.
    Gone,
}

/// From the agent, about one command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromCommand {
    /// These bytes of frames of standard input were passed on.
    Taken { bytes: usize },
    /// The command has ended, and all its output was sent.
    Ended {
        exit_code: i32,
        /// Why it could not be started.
        error: Option<String>,
    },
}

/// What a machine that is kept is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// When the machine was ready, in seconds since 1970, UTC.
    pub since: u64,
    /// The process that keeps it.
    pub pid: u32,
    /// The virtual machine monitor.
    pub vmm: String,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// The directory of the host that is the guest's root, if there is one.
    pub root: Option<PathBuf>,
    /// The shares.
    pub shares: Vec<SharedDirectory>,
    /// The commands that run, without what they have left running.
    pub commands: Vec<RunningCommand>,
}

/// A share of a machine that is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedDirectory {
    /// The directory on the host.
    pub host: PathBuf,
    /// The mount point in the guest.
    pub guest: PathBuf,
    /// `rw`, `ro` or `overlay`.
    pub mode: String,
}

impl SharedDirectory {
    pub(crate) fn of(share: &Share) -> Self {
        Self {
            host: share.host.clone(),
            guest: share.guest.clone(),
            mode: match (&share.layer, share.is_read_only) {
                (Some(_), _) => "overlay",
                (None, true) => "ro",
                (None, false) => "rw",
            }
            .into(),
        }
    }
}

/// A command that runs in a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunningCommand {
    /// The command and its arguments.
    pub words: Vec<OsString>,
    /// When it was started, in seconds since 1970, UTC.
    pub since: u64,
}
