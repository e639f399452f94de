//! The `-o` lists that older management software passes.
//!
//! A list is split at every comma, and an entry at its '='; neither can be escaped in a value. Lists apply after all
//! other options, whatever the order on the command line, and a later entry overrides an earlier one.

use super::{
    cli::Cli,
    values::{CachePolicy, LogLevel, Negotiation, SandboxMode},
};
use std::fmt;

/// An invalid entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LegacyError {
    /// A known key with an invalid value.
    Value { key: String, value: String },
    /// An unknown entry.
    Unknown { entry: String },
}

impl fmt::Display for LegacyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { key, value } => write!(f, "-o {key} does not take the value '{value}'"),
            Self::Unknown { entry } => write!(f, "-o has no entry '{entry}'"),
        }
    }
}

/// Applies one list to the flags.
pub(super) fn apply(list: &str, cli: &mut Cli) -> Result<(), LegacyError> {
    for entry in list.split(',') {
        match entry.split('=').collect::<Vec<_>>()[..] {
            [key, value] => pair(key, value, cli)?,
            [word] => switch(word, cli)?,
            _ => return Err(LegacyError::Unknown { entry: entry.to_owned() }),
        }
    }
    Ok(())
}

fn pair(key: &str, value: &str, cli: &mut Cli) -> Result<(), LegacyError> {
    let wrong = || LegacyError::Value { key: key.to_owned(), value: value.to_owned() };
    match key {
        "source" => cli.share.shared_dir = Some(value.into()),
        "xattrmap" => cli.attributes.xattrmap = Some(value.to_owned()),
        "modcaps" => cli.isolation.modcaps = Some(value.parse().map_err(|_| wrong())?),
        "cache" => {
            cli.cache.cache = match value {
                "none" => CachePolicy::Never,
                "metadata" => CachePolicy::Metadata,
                "auto" => CachePolicy::Auto,
                "always" => CachePolicy::Always,
                _ => return Err(wrong()),
            }
        }
        "sandbox" => {
            cli.isolation.sandbox = match value {
                "namespace" => SandboxMode::Namespace,
                "chroot" => SandboxMode::Chroot,
                _ => return Err(wrong()),
            }
        }
        "loglevel" => {
            cli.log.log_level = match value {
                "err" => LogLevel::Error,
                "warn" => LogLevel::Warn,
                "info" => LogLevel::Info,
                "debug" => LogLevel::Debug,
                _ => return Err(wrong()),
            }
        }
        _ => return Err(LegacyError::Unknown { entry: format!("{key}={value}") }),
    }
    Ok(())
}

fn switch(word: &str, cli: &mut Cli) -> Result<(), LegacyError> {
    let (name, is_on) = match word.strip_prefix("no_") {
        Some(name) => (name, false),
        None => (word, true),
    };
    let negotiation = if is_on { Negotiation::Always } else { Negotiation::Never };
    match name {
        "xattr" => cli.attributes.xattr = is_on,
        "readdirplus" => cli.cache.no_readdirplus = !is_on,
        "writeback" => cli.cache.writeback = is_on,
        "allow_direct_io" => cli.cache.allow_direct_io = is_on,
        "killpriv_v2" => cli.attributes.killpriv_v2 = is_on,
        "posix_acl" => cli.attributes.posix_acl = negotiation,
        "security_label" => cli.attributes.security_label = negotiation,
        "posix_lock" => cli.locks.posix_lock = is_on,
        "flock" => cli.locks.flock = is_on,
        // This is the default, and --no-announce-submounts takes precedence.
        "announce_submounts" if is_on => {}
        _ => return Err(LegacyError::Unknown { entry: word.to_owned() }),
    }
    Ok(())
}
