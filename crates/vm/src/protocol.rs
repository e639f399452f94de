//! The protocol between host and agent: the [`Setup`] in the initramfs, and messages on the control channel.
//!
//! A message is one line of JSON. The other three channels carry only the command's bytes; messages say how many.

use std::{ffi::OsString, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{GuestChannels, network::AllowedHost};

/// The file in the initramfs that holds the [`Setup`].
pub(crate) const SETUP_PATH: &str = "/transom.json";

/// The program in the initramfs that replays changes of the host, if there is one.
pub(crate) const EVENTS_PATH: &str = "/transom-agent";

/// How many random bytes a [`Beginning`] has.
pub(crate) const SEED_LEN: usize = 64;

/// What the agent needs before it can talk to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Modules in loading order, as paths in the initramfs.
    pub(crate) modules: Vec<String>,
    /// The devices of the channels.
    pub(crate) channels: GuestChannels,
    /// `None` in a machine of which a snapshot is made: the task comes by [`ToGuest::Begin`].
    pub(crate) task: Option<Task>,
}

/// What the agent is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Whether the devices of the shares may appear a moment later.
    pub(crate) has_late_shares: bool,
    /// The tag of the share that becomes the lower layer of `/`, instead of the initramfs.
    pub(crate) root_tag: Option<String>,
    /// The block device that takes what is written to `/`, instead of memory.
    pub(crate) scratch: Option<String>,
    /// Mounted in this order.
    pub(crate) mounts: Vec<Mount>,
    /// Whether changes of the host are replayed in the shares that are writable.
    pub(crate) events: Replay,
    /// What the guest can reach.
    pub(crate) network: GuestNetwork,
    /// The working directory.
    pub(crate) directory: OsString,
    /// The user and group that run the command, if it is not root.
    pub(crate) user: Option<(u32, u32)>,
    /// The command, never empty. A machine that is kept runs its first word as the shell.
    pub(crate) command: Vec<OsString>,
    /// Runs commands as they come, until [`ToGuest::Finish`], instead of `command`.
    pub(crate) is_kept: bool,
    /// Its complete environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The size of the command's terminal, if it gets one.
    pub(crate) terminal: Option<Size>,
}

/// What the guest can reach.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum GuestNetwork {
    Off,
    /// These hosts, through the channel for them.
    Allowed(Vec<AllowedHost>),
    /// Everything, through QEMU's user-mode network.
    Whole,
}

/// Whether changes of the host are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Replay {
    Never,
    /// In the shares whose daemons announce them, beside the command.
    Auto,
    /// In all shares, before the command starts.
    Always,
}

/// A share to mount in the guest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) tag: String,
    /// The share with the layer that the guest mounts over this one.
    pub(crate) layer_tag: Option<String>,
    pub(crate) path: OsString,
    pub(crate) is_read_only: bool,
    /// Options of the file system, as for `mount -o`.
    pub(crate) options: String,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// An output stream of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// What a machine gets that has waited for its task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beginning {
    pub(crate) task: Task,
    /// The time since 1970, UTC.
    pub(crate) now: Duration,
    /// Random bytes that no other machine gets.
    pub(crate) seed: Vec<u8>,
}

/// A message from the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    /// The first message, if the [`Setup`] has no task.
    Begin(Box<Beginning>),
    /// The second one then, after [`Milestone::Devices`]: from now on, what the guest does counts. Until then the host
    /// may still start another machine for the same command.
    Go,
    /// Standard input ends after this many bytes.
    StdinEnd { bytes: u64 },
    /// The size of the terminal changed.
    Resize(Size),
    /// No one reads this stream any more.
    Unwanted(Stream),
    /// Sends a signal to the command.
    Signal { number: i32 },
    /// Mounts or unmounts a share of a machine that is kept. The answer has the same number.
    Share { number: u64, change: ShareChange },
    /// Ends a machine that is kept.
    Finish,
}

/// A share that comes or goes while a machine runs. Its device is in the port with this number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ShareChange {
    Mount {
        mount: Mount,
        port: usize,
    },
    Unmount {
        tag: String,
        port: usize,
        /// Even if programs in the guest use it.
        is_forced: bool,
    },
}

/// A message from the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromGuest {
    /// The agent waits for [`ToGuest::Begin`].
    Waiting,
    /// A part of the start is done, `agent_us` microseconds after the agent started.
    Reached { milestone: Milestone, agent_us: u64 },
    /// The agent failed; the guest stops.
    Failed {
        message: String,
        /// No device appeared for a share that was plugged in.
        lacks_device: bool,
    },
    /// A share is mounted or unmounted, or why it is not.
    ShareChanged { number: u64, error: Option<String> },
    /// The command ended and the shares are unmounted.
    Ended { exit_code: i32, stdout_bytes: u64, stderr_bytes: u64, warnings: Vec<String>, notes: Vec<String> },
}

/// The parts of the start, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Milestone {
    /// The modules are loaded and the channels open.
    Devices,
    /// The root and the shares are mounted.
    Mounts,
    /// The command is running.
    Command,
}
