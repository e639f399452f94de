//! The configuration that the command line describes, as plain types.
//!
//! `parse` is the entry. `cli` defines the flags, `legacy` the older `-o` list, `values` and `ids` the keywords and
//! ranges; `resolve` checks combinations and builds `Options`. Nothing here opens, creates or reads anything.

mod cli;
mod ids;
mod legacy;
mod resolve;
mod values;

pub use ids::{NamespaceRange, Owner, Squash};
pub use values::{
    CachePolicy, CapabilityChange, Events, FileHandles, HostChanges, LogLevel, MigrationLocks, MigrationMode,
    MigrationOnError, Negotiation, SandboxMode, SeccompMode,
};

use crate::backend::RateLimits;
use clap::CommandFactory;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use transom_host::{
    group::GroupLocation,
    idmap::Rule,
    passthrough::{HiddenPaths, QuotaLimits},
    window::{DaxPolicy, FrontEnd},
};

use cli::Cli;

/// The action that the command line requests.
#[derive(Debug, Clone)]
pub enum Invocation {
    /// Print the answer to `--print-capabilities` and exit.
    PrintCapabilities,
    /// Ask the daemon that serves this socket for an upgrade.
    Upgrade(PathBuf),
    /// Serve a share.
    Serve(Box<Options>),
}

/// Everything needed to serve one share.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the front end connects.
    pub socket: SocketOptions,
    /// What is shared.
    pub share: ShareOptions,
    /// What the guest may cache, and for how long.
    pub cache: CacheOptions,
    /// Extended attributes, access control lists, labels.
    pub attributes: AttributeOptions,
    /// Ownership of files, on the host and in the guest.
    pub ownership: OwnershipOptions,
    /// The DAX window, if one is offered.
    pub window: Option<WindowOptions>,
    /// What the front end supports, with a window or without.
    pub front_end: FrontEnd,
    /// Whether locks are taken on the host.
    pub locks: LockOptions,
    /// How inodes are held, and how many descriptors that may use.
    pub inodes: InodeOptions,
    /// Queues, threads, polling.
    pub workers: WorkerOptions,
    /// Whether changes that are made on the host are observed.
    pub host_changes: HostChanges,
    /// How the daemon isolates itself.
    pub isolation: IsolationOptions,
    /// Live migration.
    pub migration: MigrationOptions,
    /// Destination and level of messages.
    pub log: LogOptions,
    /// The OpenMetrics socket, if there is one.
    pub metrics_socket: Option<PathBuf>,
    /// Warnings about deprecated or ineffective options, to be logged once the log is open.
    pub remarks: Vec<String>,
}

/// Where the front end connects.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// The listening socket.
    pub endpoint: Endpoint,
    /// Listen again after a front end disconnects, rather than exit.
    pub keep_serving: bool,
    /// Stay, and let the daemon be a child that can be replaced.
    pub upgradable: bool,
    /// Let the session survive the process that serves it. Implies `upgradable`.
    pub resilient: bool,
    /// This is such a child.
    pub supervised: Option<Supervised>,
}

/// What precedes the numbers in the last argument of a daemon that a supervisor starts.
pub(crate) const SUPERVISED: &str = "--supervised=";

/// Numbers of the descriptors that a supervisor passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supervised {
    /// Where the supervisor connects as a front end.
    pub listener: RawFd,
    /// Where its orders come from.
    pub control: RawFd,
    /// Where readers of the metrics connect.
    pub metrics: Option<RawFd>,
}

impl FromStr for Supervised {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<RawFd>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[listener, control]) => Ok(Self { listener, control, metrics: None }),
            Ok(&[listener, control, metrics]) => Ok(Self { listener, control, metrics: Some(metrics) }),
            _ => Err("two or three numbers of descriptors are expected"),
        }
    }
}

/// The listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket to create.
    Path {
        /// The socket's path.
        path: PathBuf,
        /// The name or number of the group that may connect.
        group: Option<String>,
    },
    /// An inherited listening socket with this descriptor number.
    Inherited(RawFd),
    /// No front end can connect: `--check`.
    Nowhere,
}

/// What is shared.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// A directory, or a single file.
    pub path: PathBuf,
    /// The tag under which guests mount the share, at most 36 bytes, for front ends that ask.
    pub tag: Option<String>,
    /// Holds the layers that take the guest's changes, if the directory is to stay as it is.
    pub layer: Option<PathBuf>,
    /// Refuse all changes to the share.
    pub is_readonly: bool,
    /// Whether the guest uses the share as the upper layer of an overlayfs.
    pub is_upper_layer: bool,
    /// What the guest may add to the share, if that is limited.
    pub quota: Option<QuotaLimits>,
    /// Tell the guest which directories are mount points.
    pub announce_submounts: bool,
    /// Whether changes of the host are announced to an agent in the guest.
    pub events: Events,
    /// Whether the guest is told of changes of the host over a notification queue.
    pub notification_queue: bool,
    /// How long names and attributes stay valid while an agent keeps up.
    pub events_validity: Duration,
    /// What the guest does not see.
    pub hidden: HiddenPaths,
}

/// What the guest may cache, and for how long.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The policy for names, attributes and data.
    pub policy: CachePolicy,
    /// Let the guest collect writes in its own page cache.
    pub writeback: bool,
    /// Allow shared mappings of files that are not cached.
    pub allow_mmap: bool,
    /// Pass `O_DIRECT` to the host.
    pub allow_direct_io: bool,
    /// Answer directory listings with attributes.
    pub readdirplus: bool,
    /// How long the guest may cache that a name does not exist.
    pub negative_timeout: Duration,
    /// The group whose daemons tell each other's guests what has changed.
    pub coherence_group: Option<GroupLocation>,
}

/// Extended attributes, access control lists, labels.
#[derive(Debug, Clone)]
pub struct AttributeOptions {
    /// Serve extended attributes.
    pub xattr: bool,
    /// The rules that translate names of extended attributes, as written.
    pub xattr_rules: Option<String>,
    /// POSIX access control lists.
    pub posix_acl: Negotiation,
    /// Security labels at creation.
    pub security_label: Negotiation,
    /// The host clears set-id bits on the guest's behalf.
    pub killpriv_v2: bool,
    /// Pass `O_NOATIME` to the host, even if that may be refused.
    pub preserve_noatime: bool,
    /// Answer STATX even if the guest caches attributes.
    pub birth_times: bool,
}

/// Ownership of files, on the host and in the guest.
#[derive(Debug, Clone, Default)]
pub struct OwnershipOptions {
    /// Uid ranges of the daemon's own user namespace.
    pub namespace_uids: Vec<NamespaceRange>,
    /// Gid ranges of the daemon's own user namespace.
    pub namespace_gids: Vec<NamespaceRange>,
    /// Translations of uids between guest and host, done by the daemon.
    pub translate_uid: Vec<Rule>,
    /// Translations of gids between guest and host, done by the daemon.
    pub translate_gid: Vec<Rule>,
    /// Everything belongs to one owner on each side.
    pub squash: Option<Squash>,
}

/// The window into the host's page cache.
#[derive(Debug, Clone, Copy)]
pub struct WindowOptions {
    /// A power of two, at least 2 MiB.
    pub len_bytes: u64,
    /// Which files the guest is told to map.
    pub policy: DaxPolicy,
    /// Keep other processes from truncating mapped files.
    pub guards: bool,
    /// What the front end supports.
    pub front_end: FrontEnd,
}

/// Locks taken on the host. A disabled kind stays within each guest.
#[derive(Debug, Clone, Copy, Default)]
pub struct LockOptions {
    /// `fcntl` locks.
    pub posix: bool,
    /// `flock` locks.
    pub flock: bool,
}

/// How inodes are held, and how many descriptors that may use.
#[derive(Debug, Clone, Copy)]
pub struct InodeOptions {
    /// File handles rather than descriptors.
    pub file_handles: FileHandles,
    /// The most host descriptors held for the guest; `None` is what the process's limit leaves.
    pub max_fds: Option<u64>,
    /// The most inodes kept for the guest.
    pub limit: usize,
    /// The process's descriptor limit; `None` is the default, 0 leaves it unchanged.
    pub rlimit_nofile: Option<u64>,
}

/// Queues, threads, polling.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOptions {
    /// Number of request queues, without the high-priority queue.
    pub request_queues: u16,
    /// Number of threads for operations that wait for the disk; 0 means none.
    pub thread_pool_size: usize,
    /// The longest time that a worker polls before it sleeps, in microseconds.
    pub poll_us: u32,
    /// What the guest may do in a second, if that is limited.
    pub rate: Option<RateLimits>,
}

/// How the daemon isolates itself.
#[derive(Debug, Clone)]
pub struct IsolationOptions {
    /// What the process can see.
    pub sandbox: SandboxMode,
    /// The action on a system call that is not allowed.
    pub seccomp: SeccompMode,
    /// Changes to the list of capabilities, in order.
    pub capability_changes: Vec<CapabilityChange>,
}

/// Live migration.
#[derive(Debug, Clone, Copy)]
pub struct MigrationOptions {
    /// How inodes are described to the destination.
    pub mode: MigrationMode,
    /// What to do with an inode or an open file that cannot be carried over.
    pub on_error: MigrationOnError,
    /// Send file handles along with paths, and compare.
    pub verify_handles: bool,
    /// Check each path again at the switch-over, which is always done.
    pub confirm_paths: bool,
    /// Whether POSIX locks of the host travel.
    pub locks: MigrationLocks,
}

/// Destination and level of messages.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// The least severe level to write.
    pub level: LogLevel,
    /// Write to the system log rather than standard error.
    pub syslog: bool,
}

/// Parses a command line, whose first argument is the program's name.
///
/// # Errors
/// Carries its text and exit status, also for `--help` and `--version`: `clap::Error::exit` prints the one and exits
/// with the other.
pub fn parse(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Invocation, clap::Error> {
    let mut args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let supervised = take_supervised(&mut args);
    let mut cli = <Cli as clap::Parser>::try_parse_from(args)?;
    cli.supervised = supervised;
    resolve::resolve(cli).map_err(|error| error.format(&mut command()))
}

/// Takes off what a supervisor has added to its own arguments. It is no option, because nobody else can use it.
fn take_supervised(args: &mut Vec<OsString>) -> Option<Supervised> {
    let by = args.last()?.to_str()?.strip_prefix(SUPERVISED)?.parse().ok()?;
    args.pop();
    Some(by)
}

/// Returns the command line's definition, for help texts and their tests.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod options_test;
