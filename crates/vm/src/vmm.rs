//! What a virtual machine monitor must do for a run: say what it needs in the guest, and start.
//!
//! `qemu.rs` and `uml` implement [`Vmm`]. The guest's agent talks through four character devices, whatever they
//! are: virtio-serial ports under QEMU, serial lines under User Mode Linux. Bytes pass unchanged in both
//! directions; where the device is a terminal line the agent puts it into raw mode itself. No device has to convey
//! an end of file: the control channel tells how many bytes there are.

use std::{
    ffi::OsString,
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Result, Supervised};

/// A virtual machine monitor.
pub trait Vmm: fmt::Debug {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// The kernel modules that its devices need, before those of the file systems; built-in ones are skipped.
    fn modules(&self) -> &'static [&'static str];

    /// The character devices at which the agent finds its channels.
    fn guest_channels(&self) -> GuestChannels;

    /// Arguments that the daemon behind the share `tag` needs for this VMM.
    fn daemon_args(&self, _tag: &str) -> Vec<OsString> {
        Vec::new()
    }

    /// Starts the machine.
    ///
    /// The daemons of `boot.shares` listen already. The process must be started with [`Supervised::spawn`] by the
    /// calling thread, so that it dies with this process.
    fn start(&self, boot: &Boot<'_>) -> Result<Started>;
}

/// What is booted.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The private directory of this run; sockets and logs go there.
    pub dir: &'a Path,
    /// The kernel image.
    pub kernel: &'a Path,
    /// The initramfs: uncompressed newc, with the agent as `/init`.
    pub initramfs: &'a Path,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
    /// One virtio-fs device for each.
    pub shares: &'a [SharePoint],
    /// Words for the kernel's command line, beside those of the VMM's own; the ones after `--` go to the agent.
    pub kernel_args: &'a [OsString],
    /// Where the VMM writes the console of the guest's kernel.
    pub console: &'a Path,
}

/// A daemon that waits for the VMM.
#[derive(Clone, Debug)]
pub struct SharePoint {
    /// The tag that the guest mounts.
    pub tag: String,
    /// The daemon's vhost-user socket.
    pub socket: PathBuf,
    /// It has a DAX window, and the VMM has to offer that to the guest.
    pub has_window: bool,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Started {
    /// The VMM's process.
    pub process: Supervised,
    /// The host's ends of the channels.
    pub channels: Channels,
    /// The file that takes what the VMM itself says.
    pub log: PathBuf,
}

/// The host's ends of the four channels: stream sockets, pipes or the like.
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
}

/// The guest's ends of the four channels: paths of character devices.
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
}
