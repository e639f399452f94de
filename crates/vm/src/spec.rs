//! What a guest is made of: the kernel, the shares, the root, the command and where its input and output go.
//!
//! [`GuestSpec`] is plain data, so that a test can say it in a few lines; nothing here touches the system.
//! `share.rs` parses a [`Share`] from the command line's words.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// A guest and the command that runs in it.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// What is booted.
    pub kernel: Kernel,
    /// The executable that becomes the guest's first process: `transom` itself, or any program whose `main` starts
    /// with [`crate::agent::run_if_init`]. It must be static, since the guest has no libraries.
    pub agent: PathBuf,
    /// The daemon that serves each share; it takes virtiofsd's command line.
    pub daemon: PathBuf,
    /// A static busybox that gives the minimal root its shell and tools; without it that root has none.
    pub busybox: Option<PathBuf>,
    /// The file system at `/`.
    pub root: Root,
    /// The shares; the first one is the working directory.
    pub shares: Vec<Share>,
    /// The command and its arguments; empty for a shell.
    pub command: Vec<OsString>,
    /// Added to the small environment that every command gets.
    pub env: Vec<(OsString, OsString)>,
    /// Memory of the guest, MiB.
    pub memory_mib: u32,
    /// Virtual processors of the guest.
    pub cpus: u32,
    /// Where the command's input comes from and its output goes.
    pub stdio: Stdio,
    /// The run is stopped after this time.
    pub timeout: Option<Duration>,
    /// A file for all that the guest's kernel says; without it only errors are kept, for the time of the run.
    pub console: Option<PathBuf>,
    /// SIGINT, SIGTERM, SIGHUP and SIGWINCH of this process are the run's, for its time.
    pub is_foreground: bool,
}

/// A kernel image, and the folder of its modules where it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The image as the VMM takes it: `vmlinuz-…`, or the `linux` executable of User Mode Linux.
    pub image: PathBuf,
    /// The folder that holds `kernel/` and `modules.builtin`, that is `lib/modules/<release>`; `None` where
    /// everything is built in.
    pub modules: Option<PathBuf>,
}

/// The guest's `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// The initramfs: the agent and, if there is one, busybox.
    Minimal,
    /// A directory of the host, read-only underneath, with a layer in the guest's memory that takes the writes.
    Host(Share),
}

/// A directory of the host that the guest mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The directory on the host.
    pub host: PathBuf,
    /// Where the guest mounts it.
    pub guest: PathBuf,
    /// The guest cannot change it; the daemon sees to that.
    pub is_read_only: bool,
    /// How long the guest may keep what it has read; the daemon's default when absent.
    pub cache: Option<CacheMode>,
    /// A window in which the guest maps the host's page cache; needs QEMU 11.1, see [`crate::tools::Tools`].
    pub dax: Option<Dax>,
    /// More arguments for this share's daemon, as they are.
    pub daemon_args: Vec<OsString>,
}

/// A share's DAX window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dax {
    /// Bytes of the window: a power of two, 2 MiB or more.
    pub window_len: u64,
    /// Which files are mapped.
    pub mode: DaxMode,
}

/// The guest's mount option `dax`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DaxMode {
    /// Those that the daemon says.
    #[default]
    Inode,
    /// Every file.
    Always,
}

/// The daemon's `--cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// Nothing is kept.
    Never,
    /// Names and attributes are kept, data is not.
    Metadata,
    /// Everything is kept for a short time.
    Auto,
    /// Everything is kept.
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
    /// The command gets a terminal of the guest's; this process's terminal is put into raw mode for the time.
    pub is_terminal: bool,
}

/// A source of standard input.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// This process's own.
    Inherit,
    /// At its end from the start.
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
    /// Collected, to be returned.
    #[default]
    Capture,
}
