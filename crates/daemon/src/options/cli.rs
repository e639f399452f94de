//! The command line: flags, defaults and help.
//!
//! Names, values and defaults are those of virtiofsd 1.14, which programs that start such daemons pass.
//! `docs/virtiofsd-options.md` lists differences and additions. If a flag is given twice, the last one wins.

use super::Supervised;
use super::ids::{NamespaceRange, Owner, SquashHost, squash_host};
use super::values::{
    CachePolicy, CapabilityChanges, Events, FileHandles, FrontEndName, HostChanges, LogLevel, MigrationLocks,
    MigrationMode, MigrationOnError, Negotiation, SandboxMode, SeccompMode, coherence_group, dax_policy, inode_limit,
    quota, rate, tag, window_len,
};
use crate::backend::RateLimits;
use clap::{Args, Parser};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use transom_host::{
    group::GroupLocation,
    idmap::Rule,
    passthrough::{EVENTS_VALIDITY, MAX_INODES, QuotaLimits},
    window::DaxPolicy,
};

/// The beginning of the `--help` text.
const LONG_ABOUT: &str = "\
Shares a directory of this machine with virtual machines, as a vhost-user-fs back end.

A virtual machine monitor connects to the socket; its guest mounts the share with its own virtiofs driver:

    transomd --socket-path /run/share.sock --shared-dir /srv/share &
    qemu-system-x86_64 … -machine memory-backend=m \\
        -object memory-backend-memfd,id=m,size=2G,share=on \\
        -chardev socket,id=c,path=/run/share.sock \\
        -device vhost-user-fs-pci,chardev=c,tag=share
    mount -t virtiofs share /mnt                          (in the guest)

The guest's memory has to be shared with the daemon, hence the memory backend with share=on.";

/// Shares a directory of this machine with virtual machines, as a vhost-user-fs back end.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "transomd",
    version,
    long_about = LONG_ABOUT,
    args_override_self = true,
    arg_required_else_help = true,
    override_usage = "transomd --shared-dir DIR (--socket-path PATH | --fd N) [OPTIONS]"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    #[command(flatten)]
    pub(crate) window: WindowArgs,
    #[command(flatten)]
    pub(crate) locks: LockArgs,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    #[command(flatten)]
    pub(crate) changes: HostChangeArgs,
    #[command(flatten)]
    pub(crate) isolation: IsolationArgs,
    #[command(flatten)]
    pub(crate) migration: MigrationArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) legacy: LegacyArgs,

    /// Warnings to log once the log is open; not a flag.
    #[arg(skip)]
    pub(crate) remarks: Vec<String>,

    /// What a supervisor passes on; not a flag.
    #[arg(skip)]
    pub(crate) supervised: Option<Supervised>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct SocketArgs {
    /// Create the socket at PATH and wait for the front end there
    ///
    /// A file PATH.pid with the daemon's process id is locked while the daemon lives; a second daemon on the same
    /// path is refused. Both files are removed when the daemon exits.
    #[arg(long, value_name = "PATH")]
    #[arg(required_unless_present_any = ["fd", "socket", "print_capabilities", "upgrade", "check"])]
    pub(crate) socket_path: Option<PathBuf>,

    /// Let the members of GROUP connect too, given by name or number
    ///
    /// Without it only the user that runs the daemon can.
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["fd", "print_capabilities"])]
    pub(crate) socket_group: Option<String>,

    /// Take descriptor N, inherited from the caller, as the listening socket
    #[arg(long, value_name = "N", conflicts_with_all = ["socket_path", "socket"])]
    pub(crate) fd: Option<RawFd>,

    /// When a front end leaves, wait for the next one instead of exiting
    #[arg(long)]
    pub(crate) keep_serving: bool,

    /// Let the daemon be replaced by another version while the guest runs: on SIGHUP, or by --upgrade
    ///
    /// A second process stays outside the sandbox and starts the daemon, from the file of this program that is there by
    /// then. It refuses if a guest or another user could have replaced that file. Without this option, SIGHUP ends the
    /// daemon. Excludes --overlay and --quota.
    #[arg(long)]
    pub(crate) upgradable: bool,

    /// Let the guest go on if the daemon is killed or crashes
    ///
    /// Another process takes over what is open, locked and in flight. After three deaths within ten seconds the daemon
    /// ends. Excludes --dax-window, --coherence-group, --events, --notification-queue, --host-changes, --overlay and
    /// --quota; the daemon can then be neither upgraded nor migrated.
    #[arg(long)]
    pub(crate) resilient: bool,

    /// Replace the daemon that serves the socket PATH by the version that is installed now, print the outcome, and exit
    ///
    /// The daemon has to run with --upgradable. If the new version refuses, the old one goes on and the exit status is
    /// 1. It is 3 if the new one has ended or hangs when it was too late for that. No other options are allowed.
    #[arg(long, value_name = "PATH", exclusive = true)]
    pub(crate) upgrade: Option<PathBuf>,

    /// Set everything up as for serving, without a socket, and exit
    ///
    /// The exit status is 0 if the share can be served with these options, 3 if this machine refuses the sandbox or the
    /// overlay that they ask for, and 1 otherwise; the reason is logged.
    #[arg(long, conflicts_with_all = ["socket_path", "fd", "socket", "upgradable", "resilient"])]
    pub(crate) check: bool,

    /// The same as --socket-path [deprecated]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Print, as JSON, which optional features management software may rely on, and exit
    #[arg(long)]
    pub(crate) print_capabilities: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Share")]
pub(crate) struct ShareArgs {
    /// Share this directory, or this one file
    #[arg(long, value_name = "DIR", required_unless_present_any = ["compat_options", "print_capabilities", "upgrade"])]
    pub(crate) shared_dir: Option<PathBuf>,

    /// Offer TAG, the name by which guests mount the share, to front ends that ask the daemon for it
    ///
    /// 1 to 36 bytes. Most front ends take the tag from their own command line and never ask. QEMU 7.1 to 8.0
    /// crashes if a daemon offers one.
    #[arg(long, value_parser = tag)]
    pub(crate) tag: Option<String>,

    /// Refuse all changes to the share
    ///
    /// Reading may still update access times.
    #[arg(long)]
    pub(crate) readonly: bool,

    /// Keep what the guest changes in DIR, and leave the shared directory as it is
    ///
    /// The guest sees an overlay: the shared directory, and over it DIR/upper, which takes all changes. DIR/work is for
    /// the kernel. Both must exist, on a local file system and outside of the shared directory; `transom diff`,
    /// `commit` and `discard` manage such directories for `transom run`. Needs --sandbox namespace and Linux 5.11;
    /// elsewhere, `transom run --share DIR,overlay=guest` lets the guest's kernel mount the overlay.
    /// Excludes --readonly, --events, --host-changes and --coherence-group. A single file, and a directory in which
    /// other file systems are mounted, is refused. A guest with it cannot be migrated.
    #[arg(long, value_name = "DIR")]
    pub(crate) overlay: Option<PathBuf>,

    /// Serve the share as the upper layer of an overlayfs that the guest mounts
    ///
    /// Refuses hard links (EPERM) and files without a name, with which overlayfs cannot cope on a share: once the first
    /// name of a file is removed, its other names would fail with ESTALE. Needs --xattr.
    #[arg(long, requires = "xattr")]
    pub(crate) upper_layer: bool,

    /// Limit what the guest may add to the share: SIZE bytes, and N files
    ///
    /// Beyond that, requests fail with ENOSPC; what the guest frees it can use again, and what is there at the start
    /// does not count. The guest sees the limit as the size of the file system. Excludes --readonly, --dax-window and
    /// --upgradable. A guest with it cannot be migrated.
    #[arg(long, value_name = "SIZE[,files=N]", value_parser = quota)]
    pub(crate) quota: Option<QuotaLimits>,

    /// Announce changes that others make on this host to transom-agent in the guest
    ///
    /// The agent replays them, so that the guest sees them at once and inotify reports them. If the daemon is started
    /// as root (CAP_SYS_ADMIN), it observes the whole file system, otherwise each directory that the guest knows.
    /// Excludes --writeback and --negative-timeout.
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "never", default_missing_value = "always")]
    pub(crate) events: Events,

    /// How long the guest may use names and attributes while an agent keeps up with the changes, in seconds
    ///
    /// Instead of the second of --cache auto; other cache modes have their own. File systems mounted below the share,
    /// and those that other machines can change, keep the second. What a program of the host stores through a mapping
    /// is announced when it closes the file.
    #[arg(long, value_name = "SECONDS", default_value_t = EVENTS_VALIDITY.as_secs() as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=86400))]
    pub(crate) events_validity: u32,

    /// Tell the guest of changes that others make on this host, over virtio's notification queue
    ///
    /// Offers VIRTIO_FS_F_NOTIFICATION, for guests of the library that ask for it. Linux does not, and is served as
    /// without it, except that the device has one queue more. What is observed is as with --events. Needs --tag: the
    /// driver reads the size of a notification from the daemon's configuration space.
    #[arg(long)]
    pub(crate) notification_queue: bool,

    /// Show each file system mounted below the shared directory with its own device number [default]
    #[arg(long)]
    pub(crate) announce_submounts: bool,

    /// Show the whole share as one file system
    ///
    /// Inode numbers are then not unique, and a sync in the guest reaches only the topmost file system.
    #[arg(long, overrides_with = "announce_submounts")]
    pub(crate) no_announce_submounts: bool,

    /// Hide PATH of the share, and everything below it, from the guest; may be repeated
    ///
    /// The path begins at the shared directory. The guest can neither see nor create it, and can neither rename nor
    /// remove a directory on the way to it. A path that is longer decides: see --show.
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<PathBuf>,

    /// Show the directory PATH of the share as an empty one; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) hide_contents: Vec<PathBuf>,

    /// Hide every file and directory of this name from the guest, wherever it is; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) hide_name: Vec<OsString>,

    /// Show PATH, and everything below it, although a directory above it or its name is hidden; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) show: Vec<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Caching")]
pub(crate) struct CacheArgs {
    /// What the guest may cache
    #[arg(long, value_name = "POLICY", value_enum, ignore_case = true, default_value = "auto")]
    pub(crate) cache: CachePolicy,

    /// Let the guest cache writes and send them later
    ///
    /// Writes are fewer and larger; the host sees them late, and the guest's clock sets file times.
    #[arg(long)]
    pub(crate) writeback: bool,

    /// Allow shared mappings of files with --cache never and metadata
    ///
    /// Correct only if nobody else writes to these files. Needs Linux 6.6 in the guest.
    #[arg(long)]
    pub(crate) allow_mmap: bool,

    /// Open a file on the host with O_DIRECT if a program in the guest does
    #[arg(long)]
    pub(crate) allow_direct_io: bool,

    /// How long the guest may cache that a name does not exist, in seconds; 0 for not at all
    ///
    /// Saves requests where programs look for a file in many directories, as compilers, interpreters and shells do. A
    /// file that somebody else creates can stay unseen in the guest for that time, and so can a name that the guest
    /// itself has created under another spelling, on a file system that ignores case. Excludes --cache never, and
    /// --events, --notification-queue and --coherence-group, with which the guest sees new names at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=86400))]
    pub(crate) negative_timeout: u32,

    /// Join GROUP, whose daemons share the same directory, so that guests that can use its version table see changes
    /// made by guests of the others at their next access
    ///
    /// GROUP is a name, or a directory with a '/' in its path. The table is a file in that directory, or in
    /// $XDG_RUNTIME_DIR/transom/NAME (/run/transom/NAME without that variable). All daemons of a group run as the same
    /// user. A group is one trust domain: guests see how active the others are.
    #[arg(long, value_name = "GROUP", value_parser = coherence_group)]
    pub(crate) coherence_group: Option<GroupLocation>,

    /// List directories without the attributes of their entries
    #[arg(long)]
    pub(crate) no_readdirplus: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Attributes")]
pub(crate) struct AttributeArgs {
    /// Serve extended attributes
    #[arg(long)]
    pub(crate) xattr: bool,

    /// Translate names of extended attributes by RULES, such as ':map::user.virtiofs.:'
    ///
    /// Implies --xattr. The rules are those of virtiofsd, one or more of ':type:scope:key:prepend:', or
    /// ':map:key:prepend:'.
    #[arg(long, value_name = "RULES")]
    pub(crate) xattrmap: Option<String>,

    /// Serve POSIX access control lists; without a value, 'always'
    ///
    /// Implies --xattr. Cannot be combined with translations of ids, which the lists would bypass.
    #[arg(long, value_name = "WHEN", value_enum, require_equals = true, num_args = 0..=1,
          default_value = "never", default_missing_value = "always")]
    pub(crate) posix_acl: Negotiation,

    /// Store the label that the guest's security module sends with each new file; without a value, 'always'
    ///
    /// Implies --xattr.
    #[arg(long, value_name = "WHEN", value_enum, require_equals = true, num_args = 0..=1,
          default_value = "never", default_missing_value = "always")]
    pub(crate) security_label: Negotiation,

    /// Let the host clear set-user-id and set-group-id bits when a file changes
    ///
    /// Saves a request for each write. Not for shared directories on NFS, where it does not work.
    #[arg(long, overrides_with = "no_killpriv_v2")]
    pub(crate) killpriv_v2: bool,

    /// Let the guest clear set-id bits [default]
    #[arg(long)]
    pub(crate) no_killpriv_v2: bool,

    /// Pass O_NOATIME to the host, although the host may refuse it for files of other users
    #[arg(long)]
    pub(crate) preserve_noatime: bool,

    /// Report file creation times, even if that costs a request for each file
    ///
    /// Linux gets other attributes with the name and caches them, but sends a request (STATX) for this one whenever a
    /// program asks for it; programs written in Rust always do. With --cache never, creation times are always reported.
    #[arg(long)]
    pub(crate) birth_times: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Owners")]
pub(crate) struct OwnershipArgs {
    /// Make everything the guest creates belong to UID:GID on the host, or, with 'self', to the daemon's user
    ///
    /// The guest sees one owner for everything: see --squash-as. This is a shorthand for a squash-guest and a
    /// squash-host translation of all ids, and cannot be combined with other translations.
    #[arg(long, value_name = "UID:GID|self", value_parser = squash_host,
          conflicts_with_all = ["translate_uid", "translate_gid"])]
    pub(crate) squash_to: Option<SquashHost>,

    /// The owner that the guest sees with --squash-to
    #[arg(long, value_name = "UID:GID", default_value = "0:0", requires = "squash_to")]
    pub(crate) squash_as: Owner,

    /// Translate uids between guest and host: TYPE:FIRST:TARGET:COUNT; may be repeated
    ///
    /// guest:G:H:N maps N uids from G in the guest to uids from H on the host; host:H:G:N maps in the other direction;
    /// map:G:H:N maps in both; squash-guest:G:H:N maps the whole range to H on the host; squash-host:H:G:N maps the
    /// whole range to G in the guest; forbid-guest:G:N forbids the range to the guest. Other uids stay as they are.
    /// Ranges of one direction must not overlap. Cannot be combined with --posix-acl.
    #[arg(long, value_name = "TRANSLATION")]
    pub(crate) translate_uid: Vec<Rule>,

    /// As --translate-uid, for gids
    #[arg(long, value_name = "TRANSLATION")]
    pub(crate) translate_gid: Vec<Rule>,

    /// Run in a user namespace that maps COUNT uids from INSIDE to those from OUTSIDE; may be repeated
    ///
    /// Only with --sandbox namespace. An ordinary user needs the range in /etc/subuid and newuidmap(1), except for a
    /// single range of one id, the user's own. Without this option, an ordinary user's namespace has only that id.
    #[arg(long, value_name = ":INSIDE:OUTSIDE:COUNT:")]
    pub(crate) uid_map: Vec<NamespaceRange>,

    /// As --uid-map, for gids
    #[arg(long, value_name = ":INSIDE:OUTSIDE:COUNT:")]
    pub(crate) gid_map: Vec<NamespaceRange>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "DAX window")]
pub(crate) struct WindowArgs {
    /// Offer the guest a window of SIZE in which it maps the host's page cache, as in 256M [default: none]
    ///
    /// SIZE is a power of two, at least 2 MiB. The guest then reads, writes and maps files without requests and without
    /// a copy of its own. The front end must support VHOST_USER_PROTOCOL_F_SHMEM. The generic vhost-user device of QEMU
    /// 11.1 does; it also asks the daemon for the tag, so --tag is needed. With any other front end, the share works
    /// without the window.
    #[arg(long, value_name = "SIZE", value_parser = window_len)]
    pub(crate) dax_window: Option<u64>,

    /// Which files are mapped by a guest that leaves the choice to the daemon (mount option dax=inode, the default)
    ///
    /// always: all that can be mapped correctly; never: none; size=BYTES: files of at least BYTES bytes, as in size=1M;
    /// auto: size=256K. Files that the daemon may not write, or whose end the front end cannot map, are never mapped.
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = dax_policy)]
    pub(crate) dax_policy: DaxPolicy,

    /// Let other processes truncate files that the guest has mapped
    ///
    /// Such a truncation removes pages that the guest has mapped, which stock QEMU does not survive. By default it
    /// fails with EPERM while the file is mapped, if daemon and kernel support that (root, Linux 6.14, not on tmpfs).
    /// The guest itself may truncate.
    #[arg(long)]
    pub(crate) no_dax_guard: bool,

    /// The front end, which determines how the window is used
    ///
    /// auto is safe with all of them. docs/dax.md has a table.
    #[arg(long, value_name = "NAME", value_enum, default_value = "auto")]
    pub(crate) front_end: FrontEndName,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Locks")]
pub(crate) struct LockArgs {
    /// Take fcntl locks on the host, so that they hold between guests and against the host's programs
    #[arg(long, overrides_with = "no_posix_lock")]
    pub(crate) posix_lock: bool,

    /// Keep fcntl locks within each guest [default]
    #[arg(long)]
    pub(crate) no_posix_lock: bool,

    /// Take flock locks on the host, so that they hold between guests and against the host's programs
    #[arg(long, overrides_with = "no_flock")]
    pub(crate) flock: bool,

    /// Keep flock locks within each guest [default]
    #[arg(long)]
    pub(crate) no_flock: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Resources")]
pub(crate) struct WorkerArgs {
    /// Offer N request queues; a front end may use fewer [default: 8, and 1 with --dax-window]
    ///
    /// A front end that asks the daemon for the tag passes this number to the guest, and must have N + 1 queues: with
    /// QEMU's generic device, num_vqs=N+1. Linux 6.12 crashes if it has fewer.
    #[arg(long, visible_alias = "queue-num", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=63))]
    pub(crate) num_request_queues: Option<u16>,

    /// Use up to N threads for operations that wait for the disk; 0: they block their queue
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) thread_pool_size: usize,

    /// Poll an idle queue for up to N microseconds before sleeping; 0: no polling
    ///
    /// Polling is adaptive: a queue with few requests is not polled.
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) poll_us: u32,

    /// Limit what the guest may do in a second: SIZE bytes, N requests, or both
    ///
    /// Bytes of requests and replies count, with their headers. Beyond that, the guest's requests wait; none fails.
    /// What the guest has not used is saved for a tenth of a second. What the guest maps through a DAX window does not
    /// count.
    #[arg(long, value_name = "SIZE[,requests=N]|requests=N", value_parser = rate)]
    pub(crate) rate: Option<RateLimits>,

    /// Hold inodes by file handles rather than by open descriptors
    ///
    /// Handles cost no descriptor and do not keep deleted files alive. Opening them needs the capability
    /// DAC_READ_SEARCH, which an ordinary user does not have, and which gives access to every file of the share's file
    /// system if the daemon is compromised. With 'never', the daemon drops it.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "prefer")]
    pub(crate) inode_file_handles: FileHandles,

    /// Hold at most N descriptors on behalf of the guest [default: what --rlimit-nofile leaves]
    ///
    /// Inodes beyond the limit are looked up again when they are used.
    #[arg(long, value_name = "N")]
    pub(crate) max_fds: Option<u64>,

    /// Keep at most N inodes for the guest
    ///
    /// Each takes about 130 bytes of the daemon's memory until the guest drops it from its cache. Beyond the limit,
    /// looking up or creating a file fails with ENFILE ("Too many open files in system") until the guest drops some.
    #[arg(long, value_name = "N", default_value_t = MAX_INODES, value_parser = inode_limit)]
    pub(crate) inode_limit: usize,

    /// Set the limit on open descriptors to N; 0: leave it unchanged [default: 1000000, or /proc/sys/fs/nr_open if
    /// less]
    ///
    /// A daemon that may not raise its hard limit warns and continues with the hard limit. An N above nr_open is an
    /// error.
    #[arg(long, value_name = "N")]
    pub(crate) rlimit_nofile: Option<u64>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Changes on the host")]
pub(crate) struct HostChangeArgs {
    /// Observe changes that other processes make in the shared directory
    ///
    /// In a coherence group, one daemon stamps them in the version table. The metrics count them; --events tells the
    /// guest. Needs CAP_SYS_ADMIN when the daemon starts (root; it is
    /// dropped before the guest is served), Linux 5.17, and a file system with file handles. A share that is a single
    /// file is not observed.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) host_changes: HostChanges,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Isolation")]
pub(crate) struct IsolationArgs {
    /// What the daemon can see of the machine while it serves
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true, default_value = "namespace")]
    pub(crate) sandbox: SandboxMode,

    /// What happens if the daemon makes a system call that is not allowed
    #[arg(long, value_name = "ACTION", value_enum, default_value = "kill")]
    pub(crate) seccomp: SeccompMode,

    /// Keep (+) or drop (-) capabilities relative to the default, as in '+sys_admin:-mknod'
    ///
    /// Kept by default: chown, dac_override, fowner, fsetid, setgid, setuid, mknod, setfcap, and dac_read_search with
    /// file handles.
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) modcaps: Option<CapabilityChanges>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Live migration")]
pub(crate) struct MigrationArgs {
    /// How the source describes inodes to the destination
    ///
    /// File handles need the same file system on both sides and, at the destination, the capability DAC_READ_SEARCH.
    #[arg(long, value_name = "MODE", value_enum, default_value = "find-paths")]
    pub(crate) migration_mode: MigrationMode,

    /// What to do with an inode or an open file that cannot be carried over
    #[arg(long, value_name = "ACTION", value_enum, default_value = "abort")]
    pub(crate) migration_on_error: MigrationOnError,

    /// Send file handles along with paths, and have the destination compare
    ///
    /// Detects names that are replaced during the migration; needs the same file system on both sides.
    #[arg(long)]
    pub(crate) migration_verify_handles: bool,

    /// Check every path once more at the switch-over, while the guest is stopped [always done]
    #[arg(long)]
    pub(crate) migration_confirm_paths: bool,

    /// What to do with POSIX locks of the host (--posix-lock)
    ///
    /// Needed on both sides, between two transomd on the same file system. Nobody holds the locks for some
    /// milliseconds. If somebody else takes one then, or changes a locked file, the guest goes on at the source.
    #[arg(long, value_name = "ACTION", value_enum, default_value = "refuse")]
    pub(crate) migration_locks: MigrationLocks,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Messages")]
pub(crate) struct LogArgs {
    /// Write messages of this level and above
    ///
    /// The environment variable RUST_LOG takes precedence, except with --syslog.
    #[arg(long, value_name = "LEVEL", value_enum, ignore_case = true, default_value = "info")]
    pub(crate) log_level: LogLevel,

    /// Write to the system log instead of standard error
    #[arg(long)]
    pub(crate) syslog: bool,

    /// Serve counters and latencies as OpenMetrics text on a socket at PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) metrics_socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Deprecated options")]
pub(crate) struct LegacyArgs {
    /// Options in a list, as in 'source=/srv,cache=always,xattr' [deprecated]
    ///
    /// Applied after all other options. source=DIR, cache=none|metadata|auto|always, sandbox=namespace|chroot,
    /// loglevel=err|warn|info|debug, xattrmap=RULES, modcaps=LIST; xattr, readdirplus, writeback, allow_direct_io,
    /// killpriv_v2, posix_acl, security_label, posix_lock, flock, each also with the prefix no_; announce_submounts.
    #[arg(short = 'o', value_name = "LIST")]
    pub(crate) compat_options: Option<Vec<String>>,

    /// The same as --log-level debug [deprecated]
    #[arg(short = 'd')]
    pub(crate) debug: bool,

    /// No effect: the daemon always stays in the foreground [deprecated]
    #[arg(short = 'f')]
    pub(crate) foreground: bool,
}
