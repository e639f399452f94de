//! [`GuestSpec`] describes a guest: its kernel, shares and root, the command, and where input and output go.
//!
//! It is plain data; nothing here accesses the system. [`ShareArg`](crate::ShareArg) parses a [`Share`] from the
//! command line.

use std::{ffi::OsString, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use crate::network::Network;

/// A guest and the command that runs in it.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// The kernel to boot.
    pub kernel: Kernel,
    /// The executable that becomes the guest's first process: `transom` itself, or any program whose `main` begins with
    /// [`crate::agent::run_if_init`]. It must be static, because the guest has no libraries.
    pub agent: PathBuf,
    /// Replays changes that are made on the host in the writable shares. Without it, the guest sees them when its
    /// caches expire.
    pub events: Option<Events>,
    /// The daemon for each share. It must accept virtiofsd's options.
    pub daemon: PathBuf,
    /// A static busybox with the shell and tools of the minimal root.
    pub busybox: Option<PathBuf>,
    /// The file system at `/`.
    pub root: Root,
    /// The shares; the first one is the working directory.
    pub shares: Vec<Share>,
    /// The command and its arguments; empty for a shell.
    pub command: Vec<OsString>,
    /// The command's working directory in the guest; by default the first share.
    pub directory: Option<PathBuf>,
    /// Who runs the command; by default root.
    pub user: Option<User>,
    /// Variables added to the default environment.
    pub env: Vec<(OsString, OsString)>,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// The size in bytes of a disk for what the guest writes outside of its shares, instead of its memory.
    pub scratch: Option<u64>,
    /// Where the command's input comes from and its output goes.
    pub stdio: Stdio,
    /// Stops the run after this time.
    pub timeout: Option<Duration>,
    /// A file for the whole output of the guest's console. Without it, only errors are kept, until the run ends.
    pub console: Option<PathBuf>,
    /// The directory where snapshots of booted machines are kept. With it, a machine that can be resumed starts from a
    /// snapshot; the first one boots, and a snapshot of it is made on the way.
    pub snapshots: Option<PathBuf>,
    /// What the guest can reach.
    pub network: Network,
    /// Whether the run handles SIGINT, SIGTERM, SIGHUP and SIGWINCH of this process.
    pub is_foreground: bool,
}

/// A kernel image and the directory of its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The image: `vmlinuz-…`, or the `linux` executable of User Mode Linux.
    pub image: PathBuf,
    /// The directory `lib/modules/<release>`, which contains `kernel/` and `modules.builtin`, or `None` if everything
    /// is built in.
    pub modules: Option<PathBuf>,
}

/// How changes that are made on the host are replayed. The daemon must be transomd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// The static executable of `transom-agent`.
    pub program: PathBuf,
    /// Whether a run fails if a share cannot be observed, and the command waits until changes are replayed.
    pub are_required: bool,
}

/// The guest's `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// The initramfs: the agent and, if there is one, busybox.
    Minimal,
    /// A directory of the host, read-only, under a writable layer in the guest's memory.
    Host(Share),
}

/// A directory of the host that the guest mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The directory on the host.
    pub host: PathBuf,
    /// The directory itself, opened, if another one could be at its path by the time the daemon starts.
    pub directory: Option<Directory>,
    /// The mount point in the guest.
    pub guest: PathBuf,
    /// Whether the daemon rejects changes by the guest.
    pub is_read_only: bool,
    /// How long the guest may cache data; by default the daemon decides.
    pub cache: Option<CacheMode>,
    /// A window through which the guest maps the host's page cache; needs QEMU 11.1, see [`crate::tools::Tools`].
    pub dax: Option<Dax>,
    /// The version table of the daemon's coherence group, by which the guest's kernel validates what it caches. Needs
    /// User Mode Linux with our patch, see [`crate::tools::Tools::uml_kernel_with_versions`].
    pub version_table: Option<PathBuf>,
    /// Takes what the guest changes; the directory stays as it is.
    pub layer: Option<Layer>,
    /// Additional arguments for this share's daemon.
    pub daemon_args: Vec<OsString>,
}

/// An open directory. Two are equal if they are the same descriptor.
#[derive(Clone, Debug)]
pub struct Directory(pub Arc<OwnedFd>);

impl PartialEq for Directory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Directory {}

/// What takes the guest's changes instead of the shared directory.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The directory with `upper` and `work`.
    pub path: PathBuf,
    /// The daemons inherit this descriptor, so that whoever waits for its lock knows that they have ended.
    pub held: Arc<OwnedFd>,
    /// Who puts it over the shared directory.
    pub mounted_by: MountedBy,
    /// Additional arguments for the daemon of the layer, if the guest mounts it.
    pub daemon_args: Vec<OsString>,
}

impl PartialEq for Layer {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.mounted_by) == (&other.path, other.mounted_by)
    }
}

/// Whose overlayfs puts a [`Layer`] over the shared directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountedBy {
    /// That of the host's kernel: the daemon, which must be transomd, mounts it in namespaces of its own.
    Daemon,
    /// That of the guest's kernel. The directory and the layer are two shares, the first of which is read-only.
    Guest,
}

impl Eq for Layer {}

/// Who runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The number of the user in the guest.
    pub uid: u32,
    /// The number of the group; there are no others.
    pub gid: u32,
}

/// A share's DAX window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dax {
    /// Length of the window in bytes: a power of two, at least 2 MiB.
    pub window_len: u64,
    /// Which files are mapped.
    pub mode: DaxMode,
}

/// The guest's mount option `dax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DaxMode {
    /// The files that the daemon selects.
    #[default]
    Inode,
    /// Every file.
    Always,
}

/// The daemon's `--cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Cache nothing.
    Never,
    /// Cache names and attributes, but not data.
    Metadata,
    /// Cache everything for a short time.
    Auto,
    /// Cache everything.
    Always,
}

/// Where the command's input comes from and its output goes.
#[derive(Clone, Debug, Default)]
pub struct Stdio {
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Whether the command gets a terminal in the guest. This process's terminal is then in raw mode during the run.
    pub is_terminal: bool,
}

/// A source of standard input.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// This process's own.
    Inherit,
    /// Empty input.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// A sink of standard output or standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// This process's own.
    Inherit,
    /// Collected and returned.
    #[default]
    Capture,
}
