//! What a share is configured with.

use std::time::Duration;

use crate::{idmap::OwnerMap, xattrmap::XattrMap};

/// All settings of a [`Passthrough`](super::Passthrough).
#[derive(Debug, Clone)]
pub struct Config {
    /// What the guest may keep without asking again.
    pub cache: CachePolicy,
    /// How long the guest may remember that a name is absent; 0: it asks again. Off unless asked for, since a program
    /// that waits for a file to appear would not see it.
    pub absent_names: Duration,
    /// The guest collects writes in its page cache.
    pub writeback: bool,
    /// Shared mappings of files that the guest may not cache.
    pub allow_mmap: bool,
    /// `O_DIRECT` is passed on to the host.
    pub allow_direct_io: bool,
    /// The guest is told which directories are mount points.
    pub announce_submounts: bool,
    /// Listings come with attributes.
    pub readdirplus: bool,
    /// Extended attributes are served.
    pub xattr: bool,
    /// Rules that translate the names of extended attributes.
    pub xattr_map: Option<XattrMap>,
    /// POSIX access control lists.
    pub posix_acl: Negotiation,
    /// Security labels at creation.
    pub security_label: Negotiation,
    /// The host clears set-id bits on the guest's behalf.
    pub killpriv_v2: bool,
    /// `O_NOATIME` is passed on to the host.
    pub preserve_noatime: bool,
    /// STATX is answered though the guest keeps attributes: a request for each file whose time of birth is wanted.
    pub birth_times: bool,
    /// How inodes are held.
    pub inode_file_handles: FileHandles,
    /// Whatever would change the share answers EROFS.
    pub readonly: bool,
    /// `fcntl` locks are taken on the host.
    pub posix_lock: bool,
    /// `flock` locks are taken on the host.
    pub flock: bool,
    /// Owners, between guest and host.
    pub owners: OwnerMap,
    /// The most descriptors to hold on the guest's behalf; `None`: what the process's limit leaves.
    pub max_fds: Option<usize>,
    /// The most inodes that the guest may know beside the root.
    pub max_inodes: usize,
}

/// Inodes that a guest may know unless configured otherwise: 16,777,216. A Linux guest has about 1 KiB of its own
/// memory for each inode with its name, so that one that knows as many uses 16 GiB for them. Here they take about 2
/// GiB.
pub const MAX_INODES: usize = 1 << 24;

/// How long names, attributes and data stay valid in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Everything is asked for each time; reads and writes go to the host.
    Never,
    /// Names and attributes for a day; reads and writes go to the host.
    Metadata,
    /// Names and attributes for a second; data until the file is opened again or seen to change.
    Auto,
    /// Everything for a day.
    Always,
}

/// Whether a feature is used that the guest may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiation {
    /// It is not offered.
    Never,
    /// It is used where the guest has it.
    Auto,
    /// A guest without it is refused.
    Always,
}

/// Whether inodes are held by file handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileHandles {
    /// By descriptors, and by paths beyond the bound.
    Never,
    /// By handles where they can be opened.
    Prefer,
    /// By handles; a file system without them is not served.
    Mandatory,
}

impl CachePolicy {
    /// How long names and attributes stay valid.
    pub(super) fn validity(self) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Auto => Duration::from_secs(1),
            Self::Metadata | Self::Always => Duration::from_secs(86400),
        }
    }

    /// Returns true if the guest keeps no file data.
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Self::Never | Self::Metadata)
    }

    /// Returns true if what the guest keeps survives an open.
    pub(super) fn keeps_directories(self) -> bool {
        matches!(self, Self::Metadata | Self::Always)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache: CachePolicy::Auto,
            absent_names: Duration::ZERO,
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
            posix_lock: false,
            flock: false,
            owners: OwnerMap::default(),
            max_fds: None,
            max_inodes: MAX_INODES,
        }
    }
}
