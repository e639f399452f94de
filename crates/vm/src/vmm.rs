//! The [`Vmm`] trait: what a run needs from a virtual machine monitor.
//!
//! [`qemu`](crate::qemu) and [`uml`](crate::uml) implement it. The guest's agent communicates through five character
//! devices: virtio-serial ports under QEMU, serial lines under User Mode Linux. They must pass bytes unchanged in both
//! directions; the agent sets terminal lines to raw mode. They need not convey an end of file, because the control
//! channel carries the number of bytes.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Qemu, Result, Supervised};

/// A virtual machine monitor.
pub trait Vmm: fmt::Debug {
    /// Returns the name for messages.
    fn name(&self) -> &'static str;

    /// Returns the kernel modules that its devices need, except that of a scratch disk. Modules that are built in are
    /// skipped.
    fn modules(&self) -> &'static [&'static str];

    /// Returns the character devices of the channels.
    fn guest_channels(&self) -> GuestChannels;

    /// Returns the block device of the scratch disk in the guest, of which there is no other.
    fn scratch_device(&self) -> &'static str {
        "/dev/vda"
    }

    /// Returns the arguments that the daemon of the share `tag` needs for this VMM.
    fn daemon_args(&self, _tag: &str) -> Vec<OsString> {
        Vec::new()
    }

    /// Returns the QEMU that this is, if it can resume machines from snapshots.
    fn resumable(&self) -> Option<&Qemu> {
        None
    }

    /// Starts the machine.
    ///
    /// The daemons of `boot.shares` are already listening. Implementations must start the process with
    /// [`Supervised::spawn`] on the calling thread, so that it dies with this process.
    fn start(&self, boot: &Boot<'_>) -> Result<Started>;
}

/// What to boot.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The private directory of this run, for sockets and logs.
    pub dir: &'a Path,
    /// The kernel image.
    pub kernel: &'a Path,
    /// The initramfs: uncompressed newc, with the agent as `/init`.
    pub initramfs: &'a Path,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// The shares, each of which gets a virtio-fs device.
    pub shares: &'a [SharePoint],
    /// Whether the machine has a network device, which leads to what the host can reach.
    pub has_network_device: bool,
    /// The scratch disk, if there is one.
    pub scratch: Option<&'a File>,
    /// Additional kernel parameters; those after `--` go to the agent.
    pub kernel_args: &'a [OsString],
    /// The file to which the VMM writes the guest's console.
    pub console: &'a Path,
}

/// A daemon that waits for a connection of the VMM.
#[derive(Clone, Debug)]
pub struct SharePoint {
    /// The tag that the guest mounts.
    pub tag: String,
    /// The daemon's vhost-user socket.
    pub socket: PathBuf,
    /// Whether it has a DAX window, which the VMM must offer to the guest.
    pub has_window: bool,
    /// The version table that the guest's kernel reads. The daemon creates it, before it serves the VMM.
    pub version_table: Option<PathBuf>,
}

/// A running machine.
#[derive(Debug)]
pub struct Started {
    /// The VMM's process.
    pub process: Supervised,
    /// The host's ends of the channels.
    pub channels: Channels,
    /// The file with the VMM's own messages.
    pub log: PathBuf,
}

/// The host's ends of the five channels: stream sockets, pipes or the like.
#[derive(Debug)]
pub struct Channels {
    /// Bytes to the command.
    pub stdin: OwnedFd,
    /// Bytes from the command.
    pub stdout: OwnedFd,
    /// Bytes from the command.
    pub stderr: OwnedFd,
    /// Messages in both directions.
    pub control: OwnedFd,
    /// Frames in both directions, if the guest has allowed hosts ([`network`](crate::network)).
    pub network: OwnedFd,
}

/// The guest's ends of the five channels: paths of character devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestChannels {
    /// Bytes to the command.
    pub stdin: String,
    /// Bytes from the command.
    pub stdout: String,
    /// Bytes from the command.
    pub stderr: String,
    /// Messages in both directions.
    pub control: String,
    /// Frames in both directions.
    pub network: String,
}
