//! The words that options take as values.

use clap::ValueEnum;
use std::str::FromStr;
use tracing::level_filters::LevelFilter;

/// What the guest may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CachePolicy {
    /// Nothing is kept; each access asks the host
    #[value(alias = "none")]
    Never,
    /// Names and attributes are kept, data is not
    Metadata,
    /// Everything is kept for a second; data is dropped when a file is opened and has changed
    Auto,
    /// Everything is kept until the guest needs the memory; right only if nobody else changes the share
    Always,
}

/// Whether a feature is offered to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Negotiation {
    /// Not offered
    Never,
    /// Used if the guest knows it
    Auto,
    /// Demanded; a guest that does not know it cannot mount the share
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

/// What happens at a system call that is not on the daemon's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeccompMode {
    /// No filter
    None,
    /// The daemon dies
    Kill,
    /// The kernel logs it and lets it pass
    Log,
    /// The daemon gets SIGSYS
    Trap,
}

/// Whether inodes are held by file handles rather than by open descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileHandles {
    /// Always a descriptor
    Never,
    /// A handle where the host file system has them and the daemon may open them, else a descriptor
    #[value(alias = "fallback")]
    Prefer,
    /// Always a handle; what has none cannot be used
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

/// What the destination of a migration does with an inode that it cannot find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigrationOnError {
    /// The migration fails
    Abort,
    /// The guest gets errors for that inode
    GuestError,
}

/// The least severe level that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What failed
    Error,
    /// What may fail later
    Warn,
    /// What happens to the share as a whole
    Info,
    /// What happens to each connection and queue
    Debug,
    /// What happens to each request
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
    /// Which capability.
    pub capability: caps::Capability,
    /// Kept, or dropped.
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

/// Reads a tag: 1 to 36 bytes, as the device's configuration space holds it.
pub(crate) fn tag(text: &str) -> Result<String, String> {
    match text.len() {
        1..=36 => Ok(text.to_owned()),
        len => Err(format!("a tag has 1 to 36 bytes, this one has {len}")),
    }
}
