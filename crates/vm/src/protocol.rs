//! What host and agent say to each other: the task, in the initramfs, and the messages on the control channel.
//!
//! A message is one line of JSON. Text never appears on the other three channels, which carry the command's bytes
//! and nothing else; how many there are is said here.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::GuestChannels;

/// The file in the initramfs that holds the [`Task`].
pub(crate) const TASK_PATH: &str = "/transom.json";

/// What the agent has to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Modules in the order of loading, as paths in the initramfs.
    pub(crate) modules: Vec<String>,
    /// Where the channels are.
    pub(crate) channels: GuestChannels,
    /// The tag of the share that becomes the lower layer of `/`; `None` for the initramfs itself.
    pub(crate) root_tag: Option<String>,
    /// Mounted in this order.
    pub(crate) mounts: Vec<Mount>,
    /// The working directory.
    pub(crate) directory: OsString,
    /// The command, never empty.
    pub(crate) command: Vec<OsString>,
    /// Its whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The command gets a terminal of this size.
    pub(crate) terminal: Option<Size>,
}

/// A share as the guest sees it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) tag: String,
    pub(crate) path: OsString,
    pub(crate) is_read_only: bool,
    /// For the file system, as `mount -o` takes them.
    pub(crate) options: String,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// A stream from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// From the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    /// Standard input ends after this many bytes.
    StdinEnd { bytes: u64 },
    /// The terminal changed its size.
    Resize(Size),
    /// Nobody reads this any more.
    Unwanted(Stream),
    /// This signal is for the command.
    Signal { number: i32 },
}

/// From the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromGuest {
    /// A part of the start is done, so many microseconds after the agent began.
    Reached { milestone: Milestone, agent_us: u64 },
    /// The agent could not go on; the guest stops.
    Failed { message: String },
    /// The command ended and the shares are unmounted; so much was written on each channel.
    Ended { exit_code: i32, stdout_bytes: u64, stderr_bytes: u64, warnings: Vec<String> },
}

/// The parts of the start, as the guest sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Milestone {
    /// The modules are loaded and the channels open.
    Devices,
    /// The root and the shares are mounted.
    Mounts,
    /// The command runs.
    Command,
}
