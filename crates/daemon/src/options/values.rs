//! The keywords that options take as values.

use crate::backend::RateLimits;
use clap::ValueEnum;
use std::str::FromStr;
use tracing::level_filters::LevelFilter;
use transom_host::{
    group::{GroupError, GroupLocation},
    passthrough::QuotaLimits,
    window::{DaxPolicy, FrontEnd, RANGE_LEN},
};

/// Parses what a guest may add to the share.
pub(super) fn quota(text: &str) -> Result<QuotaLimits, String> {
    transom_size::parse_quota(text).map(|(bytes, files)| QuotaLimits { bytes, files })
}

/// Parses what a guest may do in a second.
pub(super) fn rate(text: &str) -> Result<RateLimits, String> {
    let (bytes, requests) = transom_size::parse_rate(text)?;
    Ok(RateLimits { bytes, requests })
}

/// What the guest may cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CachePolicy {
    /// Nothing is cached; each access asks the host
    #[value(alias = "none")]
    Never,
    /// Names and attributes are cached, data is not
    Metadata,
    /// Names and attributes are cached for a second; cached data is dropped if the file has changed when it is opened
    Auto,
    /// Everything is cached until the guest needs the memory; correct only if nobody else changes the share
    Always,
}

/// Whether a feature is offered to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Negotiation {
    /// Not offered
    Never,
    /// Used if the guest supports it
    Auto,
    /// Required; a guest that does not support it cannot mount the share
    Always,
}

/// What the process can see once it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SandboxMode {
    /// Namespaces of its own, with the share as the only files in them
    Namespace,
    /// The share as root directory; needs root
    Chroot,
    /// No isolation
    None,
}

/// The action on a system call that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeccompMode {
    /// No filter
    None,
    /// The daemon is killed
    Kill,
    /// The kernel logs and allows it
    Log,
    /// The daemon gets SIGSYS
    Trap,
}

/// Whether inodes are held by file handles rather than by open descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileHandles {
    /// Always a descriptor
    Never,
    /// A handle if the host's file system supports them and the daemon may open them, otherwise a descriptor
    #[value(alias = "fallback")]
    Prefer,
    /// Always a handle; files without handles cannot be used
    Mandatory,
}

/// Whether changes that are made on the host are announced to an agent in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Events {
    /// They are; the daemon does not start if they cannot be observed
    Always,
    /// They are if they can be observed
    Auto,
    /// They are not
    Never,
}

/// Whether changes that are made on the host are observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostChanges {
    /// In a coherence group they are stamped, if that is possible; otherwise they are not observed
    Auto,
    /// They are not
    Never,
    /// They are if the kernel, the file system and the daemon's privileges allow it; otherwise there is a warning
    Prefer,
    /// The daemon does not start if they cannot be
    Mandatory,
}

/// How inodes are described to the destination of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigrationMode {
    /// By their paths within the share
    FindPaths,
    /// By file handles; source and destination share the same file system
    FileHandles,
}

/// What a migration does with an inode or an open file that cannot be carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigrationOnError {
    /// The migration fails
    Abort,
    /// The guest gets errors for that inode
    GuestError,
}

/// Whether POSIX locks of the host travel with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigrationLocks {
    /// A guest that holds a lock or waits for one is not migrated
    Refuse,
    /// The destination takes the locks when the source has let go of them
    Carry,
}

/// The least severe level to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures
    Error,
    /// Conditions that may cause failures later
    Warn,
    /// Events of the share as a whole
    Info,
    /// Events of each connection and queue
    Debug,
    /// Events of each request
    Trace,
    /// Nothing
    Off,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
            LogLevel::Off => LevelFilter::OFF,
        }
    }
}

/// One change to the list of capabilities: `+name` or `-name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapabilityChange {
    /// The capability.
    pub capability: caps::Capability,
    /// Whether it is kept or dropped.
    pub is_kept: bool,
}

impl FromStr for CapabilityChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_kept, name) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(name), _) => (true, name),
            (_, Some(name)) => (false, name),
            _ => return Err(format!("'{text}' has neither '+' nor '-' before the capability's name")),
        };
        let name = name.to_uppercase();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        let capability = format!("CAP_{name}").parse().map_err(|_| format!("there is no capability named '{name}'"))?;
        Ok(Self { capability, is_kept })
    }
}

/// The value of `--modcaps`: `+name:-name:…`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CapabilityChanges(pub(crate) Vec<CapabilityChange>);

impl FromStr for CapabilityChanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(':').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Parses a tag: 1 to 36 bytes, the space in the device's configuration.
pub(crate) fn tag(text: &str) -> Result<String, String> {
    match text.len() {
        1..=36 => Ok(text.to_owned()),
        len => Err(format!("a tag has 1 to 36 bytes, this one has {len}")),
    }
}

/// The front end's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontEndName {
    /// Any: only what all of them support is used
    Auto,
    /// QEMU's generic device, vhost-user-test-device-pci, 11.1 and later
    Qemu,
    /// crosvm
    Crosvm,
    /// Alioth
    Alioth,
    /// A front end that follows the vhost-user specification
    Generic,
    /// transom mount --passthrough, which passes the files to the kernel
    Passthrough,
    /// QEMU as its documentation describes it; a test uses it to show that it must not be trusted
    #[value(hide = true)]
    QemuWithoutBarrier,
}

impl From<FrontEndName> for FrontEnd {
    fn from(name: FrontEndName) -> Self {
        match name {
            FrontEndName::Auto => Self::AUTO,
            FrontEndName::Qemu => Self::QEMU,
            FrontEndName::Crosvm => Self::CROSVM,
            FrontEndName::Alioth => Self::ALIOTH,
            FrontEndName::Generic => Self::GENERIC,
            FrontEndName::Passthrough => Self::PASSTHROUGH,
            FrontEndName::QemuWithoutBarrier => Self { needs_barrier: false, ..Self::QEMU },
        }
    }
}

/// Parses the size of a window: a power of two, at least 2 MiB.
pub(crate) fn window_len(text: &str) -> Result<u64, String> {
    let bytes = transom_size::parse(text)?;
    if !bytes.is_power_of_two() || bytes < RANGE_LEN {
        return Err(format!("{bytes} is not a valid window size: it must be a power of two, at least 2 MiB"));
    }
    Ok(bytes)
}

/// Parses a number of inodes: at least 1, for the root.
pub(crate) fn inode_limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the limit must be at least 1, for the root".to_owned()),
        parsed => parsed.map_err(|error: std::num::ParseIntError| error.to_string()),
    }
}

/// Parses the name or directory of a coherence group.
pub(crate) fn coherence_group(text: &str) -> Result<GroupLocation, String> {
    text.parse().map_err(|error: GroupError| error.to_string())
}

/// Parses `auto`, `always`, `never` or `size=BYTES`.
pub(crate) fn dax_policy(text: &str) -> Result<DaxPolicy, String> {
    match text.split_once('=') {
        None if text == "auto" => Ok(DaxPolicy::AUTO),
        None if text == "always" => Ok(DaxPolicy::Always),
        None if text == "never" => Ok(DaxPolicy::Never),
        Some(("size", size)) => transom_size::parse(size).map(DaxPolicy::FromSize),
        _ => Err(format!("'{text}' is not one of auto, always, never, size=BYTES")),
    }
}
