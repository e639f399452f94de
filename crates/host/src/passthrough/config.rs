//! The configuration of a share.

use std::{sync::Arc, time::Duration};

use super::{ObserveDirectories, hidden::rules::HiddenPaths, quota::limits::QuotaLimits};
use crate::{idmap::OwnerMap, migration, notifications::Notifications, xattrmap::XattrMap};

/// All settings of a [`Passthrough`](super::Passthrough).
#[derive(Debug, Clone)]
pub struct Config {
    /// What the guest may cache.
    pub cache: CachePolicy,
    /// How long the guest may cache that a name is absent; 0 disables it. Off by default, since a program that waits
    /// for a file to appear would not see it.
    pub negative_timeout: Duration,
    /// Lets the guest collect writes in its page cache.
    pub writeback: bool,
    /// Allows shared mappings of files that the guest may not cache.
    pub allow_mmap: bool,
    /// Passes `O_DIRECT` on to the host.
    pub allow_direct_io: bool,
    /// Tells the guest which directories are mount points.
    pub announce_submounts: bool,
    /// Returns attributes in directory listings.
    pub readdirplus: bool,
    /// Serves extended attributes.
    pub xattr: bool,
    /// Rules that translate names of extended attributes.
    pub xattr_map: Option<XattrMap>,
    /// POSIX access control lists.
    pub posix_acl: Negotiation,
    /// Security labels set at creation.
    pub security_label: Negotiation,
    /// The host clears set-id bits on the guest's behalf.
    pub killpriv_v2: bool,
    /// Passes `O_NOATIME` on to the host.
    pub preserve_noatime: bool,
    /// Serves STATX even if the guest caches attributes: one request for each file whose birth time is wanted.
    pub birth_times: bool,
    /// How references to inodes are kept.
    pub inode_file_handles: FileHandles,
    /// Refuses every change of the share with EROFS.
    pub readonly: bool,
    /// The guest's kernel puts the share over another one, as the upper layer of an overlayfs: hard links are refused
    /// with EPERM, and files without a name with ENOSYS. Overlayfs keeps one name of each inode, and asks the share
    /// whether that name still exists before it uses any other one. Once it is removed, the rest would be ESTALE.
    pub is_upper_layer: bool,
    /// The directory is an overlay, whose upper layer belongs to this host.
    pub is_layered: bool,
    /// What the guest may add to the share; `None` for as much as its file system holds.
    pub quota: Option<QuotaLimits>,
    /// Takes `fcntl` locks on the host.
    pub posix_lock: bool,
    /// Takes `flock` locks on the host.
    pub flock: bool,
    /// Translation of owners between guest and host.
    pub owners: OwnerMap,
    /// Announces changes of the host to an agent in the guest.
    pub events: bool,
    /// Where changes of the host are put that the guest is told over its notification queue.
    pub notifications: Option<Arc<Notifications>>,
    /// Has changes observed in each directory that the guest knows; `None` if they are in the whole file system. Not
    /// used without `events` or `notifications`.
    pub observe_directories: Option<Arc<dyn ObserveDirectories>>,
    /// How long names and attributes stay valid under [`CachePolicy::Auto`] while an agent keeps up with the changes.
    pub events_validity: Duration,
    /// Maximum number of descriptors held for the guest; `None` derives it from the process's limit.
    pub max_fds: Option<usize>,
    /// Maximum number of inodes that the guest may know, not counting the root.
    pub max_inodes: usize,
    /// What the guest does not see.
    pub hidden: HiddenPaths,
    /// How a session is carried over to another daemon.
    pub migration: migration::Options,
}

/// Default for [`Config::events_validity`]: 30 seconds. An agent that dies leaves the guest with what it has cached by
/// then for so long.
pub const EVENTS_VALIDITY: Duration = Duration::from_secs(30);

/// Default for the number of inodes that a guest may know: 16,777,216. A Linux guest uses about 1 KiB of its own
/// memory for each inode with its name, so a guest that knows that many uses 16 GiB for them. On the host they take
/// about 2 GiB.
pub const MAX_INODES: usize = 1 << 24;

/// How long names, attributes and data stay valid in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Nothing is cached; reads and writes go to the host.
    Never,
    /// Names and attributes for a day; reads and writes go to the host.
    Metadata,
    /// Names and attributes for a second; data until the file is opened again or found to have changed.
    Auto,
    /// Everything for a day.
    Always,
}

/// Whether to use a feature that the guest may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiation {
    /// Do not offer it.
    Never,
    /// Use it if the guest supports it.
    Auto,
    /// Refuse a guest that does not support it.
    Always,
}

/// Whether inodes are referenced by file handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileHandles {
    /// By descriptor, and by path beyond the limit on descriptors.
    Never,
    /// By handle on file systems where handles can be opened.
    Prefer,
    /// By handle only; a file system without handles is not served.
    Mandatory,
}

impl CachePolicy {
    /// Returns how long names and attributes stay valid.
    pub(super) fn validity(self) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Auto => Duration::from_secs(1),
            Self::Metadata | Self::Always => Duration::from_secs(86400),
        }
    }

    /// Returns whether the guest caches no file data.
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Self::Never | Self::Metadata)
    }

    /// Returns whether cached entries of a directory survive an open.
    pub(super) fn keeps_directories(self) -> bool {
        matches!(self, Self::Metadata | Self::Always)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache: CachePolicy::Auto,
            negative_timeout: Duration::ZERO,
            writeback: false,
            allow_mmap: false,
            allow_direct_io: false,
            announce_submounts: true,
            readdirplus: true,
            xattr: false,
            xattr_map: None,
            posix_acl: Negotiation::Never,
            security_label: Negotiation::Never,
            killpriv_v2: false,
            preserve_noatime: false,
            birth_times: false,
            inode_file_handles: FileHandles::Prefer,
            readonly: false,
            is_upper_layer: false,
            is_layered: false,
            quota: None,
            posix_lock: false,
            flock: false,
            owners: OwnerMap::default(),
            events: false,
            notifications: None,
            observe_directories: None,
            events_validity: EVENTS_VALIDITY,
            max_fds: None,
            max_inodes: MAX_INODES,
            hidden: HiddenPaths::default(),
            migration: migration::Options::default(),
        }
    }
}
