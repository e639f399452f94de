//! What the daemon can access while it serves: the share and its own descriptors, and nothing else of the machine.
//!
//! `enter` isolates the calling process. With `namespace` and `chroot` it forks: the original process stays outside the
//! sandbox as the `keeper`, and the rest of the program runs in the child. `namespace` builds the child's file system
//! with `mount_attributes` and `overlay`, `id_maps` sets up its user namespace, and `termination` ends it on a
//! signal. With `--resilient`, `outlive` lets other processes stay that start the rest of the program again when it
//! dies.
//!
//! Must be called before the first thread starts: namespaces and credentials are per thread, and a fork keeps only the
//! calling thread.

mod fork;
mod id_maps;
mod keeper;
mod mount_attributes;
mod namespace;
mod outlive;
mod overlay;
pub mod termination;

pub use keeper::reduce_effective_capabilities;
pub use outlive::{Life, outlive};

use crate::listen::{Listening, Traces};
use crate::options::{NamespaceRange, SandboxMode};
use nix::sched::CloneFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::process::{Signal, geteuid, set_parent_process_death_signal};
use rustix::thread::set_thread_groups;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tracing::warn;

/// The remaining risk if the share's mounts are the host's own.
const OPEN_DEVICES: &str = "nothing but the daemon's own code keeps device nodes in the share from being opened: \
                            mount the share nodev, or keep the guest from making any with --modcaps -mknod";

/// Why the process could not be isolated.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The share cannot be accessed.
    #[error("cannot share {}", path.display())]
    Share {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Only directories and files can be shared.
    #[error("cannot share {}: it is neither a directory nor a file", path.display())]
    ShareKind {
        /// The path.
        path: PathBuf,
    },
    /// The share cannot be put under a layer.
    #[error("cannot make an overlay of {}: {cause}{advice}", path.display())]
    Overlay {
        /// The share.
        path: PathBuf,
        /// The cause; not a `source`, because the advice follows it.
        cause: io::Error,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// An overlay would not contain a file system that the share contains.
    #[error(
        "cannot make an overlay of {}: a file system is mounted at {}, and an overlay has none; unmount it, or share \
         a directory without it",
        path.display(),
        below.display()
    )]
    MountedBelow {
        /// The share.
        path: PathBuf,
        /// Where the file system is mounted.
        below: PathBuf,
    },
    /// A system call failed.
    #[error("{what}: {cause}{advice}")]
    Step {
        /// The attempted operation.
        what: &'static str,
        /// The cause; not a `source`, because the advice follows it.
        cause: io::Error,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// `chroot` as an ordinary user.
    #[error("--sandbox chroot needs root; an ordinary user can use --sandbox namespace")]
    ChrootNeedsRoot,
    /// A single file as a root directory.
    #[error("--sandbox chroot needs a directory; a single file can be shared with --sandbox namespace or none")]
    ChrootNeedsDirectory,
    /// The user namespace has no ids.
    #[error("cannot set the ids of the user namespace; the reason is above")]
    IdMaps,
}

impl SandboxError {
    /// Returns whether this machine is the reason, rather than the share: another one may serve it with these options.
    pub fn is_of_machine(&self) -> bool {
        match self {
            Self::Overlay { .. } | Self::Step { .. } | Self::ChrootNeedsRoot | Self::IdMaps => true,
            Self::Share { .. } | Self::ShareKind { .. } | Self::MountedBelow { .. } | Self::ChrootNeedsDirectory => {
                false
            }
        }
    }
}

/// The resources of the isolated process.
#[derive(Debug)]
pub struct Sandboxed {
    /// The share: an `O_PATH` descriptor of its directory or file.
    pub root: OwnedFd,
    /// `/proc/self/fd`: an `O_PATH` descriptor through which other such descriptors can be reopened.
    pub proc_self_fd: OwnedFd,
    /// The socket, unchanged.
    pub listener: UnixListener,
    /// What this process has to remove at its end; empty if the keeper does it.
    pub traces: Traces,
    /// The ids that this process can use.
    pub ids: IdScope,
}

/// The ids that a process can assume and assign to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdScope {
    /// All ids of the machine.
    Machine,
    /// Several ids of a user namespace.
    Several,
    /// A single id.
    One,
}

/// Isolates this process around `share`. With `namespace` and `chroot`, only the child returns.
///
/// `layer` has the layers of an overlay, with which only `namespace` can be combined.
pub fn enter(
    share: &Path,
    layer: Option<&Path>,
    mode: SandboxMode,
    uids: &[NamespaceRange],
    gids: &[NamespaceRange],
    listening: Listening,
) -> Result<Sandboxed, SandboxError> {
    let is_directory = check_share(share)?;
    drop_groups()?;
    termination::hold_signals().map_err(step("cannot block signals", ""))?;
    if mode != SandboxMode::Namespace && geteuid().is_root() && !has_closed_devices(share) {
        warn!("with this sandbox {OPEN_DEVICES}");
    }
    match mode {
        SandboxMode::None => {
            let (root, proc_self_fd) = open_roots(share)?;
            let Listening { listener, traces } = listening;
            Ok(Sandboxed { root, proc_self_fd, listener, traces, ids: id_scope() })
        }
        SandboxMode::Chroot if !geteuid().is_root() => Err(SandboxError::ChrootNeedsRoot),
        SandboxMode::Chroot if !is_directory => Err(SandboxError::ChrootNeedsDirectory),
        SandboxMode::Chroot => {
            let listening = keeper::leave_behind(listening)?;
            let (root, proc_self_fd) = open_roots(share)?;
            let ids = id_scope();
            rustix::process::chroot(share).map_err(step("cannot make the share the root directory", ""))?;
            rustix::process::chdir("/").map_err(step("cannot change to the root directory", ""))?;
            die_with(&listening.keeper)?;
            Ok(Sandboxed { root, proc_self_fd, listener: listening.listener, traces: listening.traces, ids })
        }
        SandboxMode::Namespace => {
            let share = Shared { path: share, layer, is_directory };
            in_namespaces(share, uids, gids, listening)
        }
    }
}

/// What is shared in namespaces.
#[derive(Clone, Copy)]
struct Shared<'a> {
    path: &'a Path,
    /// Holds the layers of an overlay, if there is one.
    layer: Option<&'a Path>,
    is_directory: bool,
}

fn in_namespaces(
    share: Shared<'_>,
    uids: &[NamespaceRange],
    gids: &[NamespaceRange],
    listening: Listening,
) -> Result<Sandboxed, SandboxError> {
    const ADVICE: &str = "; where namespaces are not allowed, --sandbox none or, as root, --sandbox chroot remain";
    if !geteuid().is_root() || !uids.is_empty() || !gids.is_empty() {
        id_maps::enter_user_namespace(uids, gids, ADVICE)?;
    }
    nix::sched::unshare(CloneFlags::CLONE_NEWPID).map_err(step("cannot create a pid namespace", ADVICE))?;
    let listening = keeper::leave_behind(listening)?;

    id_maps::become_root_of_namespace()?;
    let ids = id_scope();
    nix::sched::unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(step("cannot create mount and network namespaces", ADVICE))?;
    let (root, proc_self_fd) = namespace::isolate_files(share)?;
    die_with(&listening.keeper)?;
    Ok(Sandboxed { root, proc_self_fd, listener: listening.listener, traces: listening.traces, ids })
}

/// Returns whether the share is a directory, as opposed to a file.
fn check_share(share: &Path) -> Result<bool, SandboxError> {
    let stat = rustix::fs::stat(share)
        .map_err(|error| SandboxError::Share { path: share.to_owned(), source: error.into() })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(true),
        FileType::RegularFile => Ok(false),
        _ => Err(SandboxError::ShareKind { path: share.to_owned() }),
    }
}

/// Returns whether device nodes on the share's topmost mount cannot be opened.
fn has_closed_devices(share: &Path) -> bool {
    rustix::fs::statvfs(share).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NODEV))
}

/// Drops the supplementary groups of root's session, which would grant a guest's user access to files by group.
///
/// An ordinary user keeps its groups: it serves what it may access, and cannot change them.
fn drop_groups() -> Result<(), SandboxError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    match set_thread_groups(&[]) {
        // Denied in a user namespace with one id, where no other user's id can be assumed anyway.
        Err(rustix::io::Errno::PERM) if id_scope() != IdScope::Machine => Ok(()),
        result => result.map_err(step("cannot drop supplementary groups", "")),
    }
}

fn open_roots(share: &Path) -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, share, flags, Mode::empty())
        .map_err(|error| SandboxError::Share { path: share.to_owned(), source: error.into() })?;
    let proc_self_fd = rustix::fs::openat(CWD, "/proc/self/fd", flags | OFlags::DIRECTORY, Mode::empty())
        .map_err(step("cannot open /proc/self/fd", "; /proc has to be mounted"))?;
    Ok((root, proc_self_fd))
}

/// Makes this process end when the keeper does.
fn die_with(keeper: &keeper::Keeper) -> Result<(), SandboxError> {
    // Must come late: a change of credentials resets it.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(step("cannot follow the parent process", ""))?;
    if keeper.is_gone() {
        std::process::exit(1);
    }
    Ok(())
}

/// Returns the ids that this process can use. An unreadable `/proc` counts as a machine without user namespaces.
fn id_scope() -> IdScope {
    let lines = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let counts: Vec<u64> = lines.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse().ok()).collect();
    match counts[..] {
        [] => IdScope::Machine,
        [count] if count == u64::from(u32::MAX) => IdScope::Machine,
        [1] => IdScope::One,
        _ => IdScope::Several,
    }
}

/// Returns a function that adds `what` and `advice` to an error.
fn step<E: Into<io::Error>>(what: &'static str, advice: &'static str) -> impl Fn(E) -> SandboxError {
    move |source| SandboxError::Step { what, cause: source.into(), advice }
}
