//! One translation rule, as on the command line.

use std::{fmt, str::FromStr};

/// A rule: `count` ids from the first one named, and their translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `guest:G:H:N`: guest ids from G become host ids from H, one to one.
    Guest {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// Number of ids.
        count: u32,
    },
    /// `host:H:G:N`: host ids from H become guest ids from G, one to one.
    Host {
        /// First id on the host.
        host: u32,
        /// First id in the guest.
        guest: u32,
        /// Number of ids.
        count: u32,
    },
    /// `squash-guest:G:H:N`: guest ids from G all become the host id H.
    SquashGuest {
        /// First id in the guest.
        guest: u32,
        /// The one id on the host.
        host: u32,
        /// Number of ids.
        count: u32,
    },
    /// `squash-host:H:G:N`: host ids from H all become the guest id G.
    SquashHost {
        /// First id on the host.
        host: u32,
        /// The one id in the guest.
        guest: u32,
        /// Number of ids.
        count: u32,
    },
    /// `forbid-guest:G:N`: guest ids from G are refused with EPERM.
    ForbidGuest {
        /// First id in the guest.
        guest: u32,
        /// Number of ids.
        count: u32,
    },
    /// `map:G:H:N`: both `guest:G:H:N` and `host:H:G:N`.
    Map {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// Number of ids.
        count: u32,
    },
}

/// Why a text is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The first word is not followed by a separator.
    #[error("rule '{0}' has no numbers; an example of a rule is 'map:0:100000:65536'")]
    NoNumbers(String),
    /// The first word is not one of the six kinds.
    #[error("rule '{0}' has an unknown kind; known are guest, host, squash-guest, squash-host, forbid-guest, map")]
    Kind(String),
    /// A field is not a number from 0 to 4294967295.
    #[error("'{field}' in rule '{rule}' is not a number from 0 to {max}", max = u32::MAX)]
    Number {
        /// The whole text.
        rule: String,
        /// The offending part.
        field: String,
    },
    /// There are too many or too few numbers.
    #[error("rule '{rule}' has {found} numbers instead of {expected}")]
    Count {
        /// The whole text.
        rule: String,
        /// The numbers that this kind of rule takes.
        expected: usize,
        /// The numbers found.
        found: usize,
    },
}

impl Rule {
    /// Returns rules that map all guest ids to `host` and all host ids to `guest`.
    pub fn squash_all(host: u32, guest: u32) -> [Self; 2] {
        // The last number is not an id: system calls use it for "no change".
        let count = u32::MAX;
        [Self::SquashGuest { guest: 0, host, count }, Self::SquashHost { host: 0, guest, count }]
    }
}

/// Parses a rule. The separator is the first character that is not part of the first word, `:` by custom, and the same
/// throughout the rule.
impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let rule = || text.to_owned();
        let (at, separator) = text
            .char_indices()
            .find(|&(_, c)| !(c.is_alphanumeric() || c == '-' || c == '_'))
            .ok_or_else(|| RuleError::NoNumbers(rule()))?;
        let numbers = text[at + separator.len_utf8()..]
            .split(separator)
            .map(|field| field.parse().map_err(|_| RuleError::Number { rule: rule(), field: field.to_owned() }))
            .collect::<Result<Vec<u32>, RuleError>>()?;
        let kind = text[..at].to_lowercase();
        let expected = if kind == "forbid-guest" { 2 } else { 3 };
        Ok(match (kind.as_str(), numbers.as_slice()) {
            ("guest", &[guest, host, count]) => Self::Guest { guest, host, count },
            ("host", &[host, guest, count]) => Self::Host { host, guest, count },
            ("squash-guest", &[guest, host, count]) => Self::SquashGuest { guest, host, count },
            ("squash-host", &[host, guest, count]) => Self::SquashHost { host, guest, count },
            ("forbid-guest", &[guest, count]) => Self::ForbidGuest { guest, count },
            ("map", &[guest, host, count]) => Self::Map { guest, host, count },
            ("guest" | "host" | "squash-guest" | "squash-host" | "forbid-guest" | "map", _) => {
                return Err(RuleError::Count { rule: rule(), expected, found: numbers.len() });
            }
            _ => return Err(RuleError::Kind(rule())),
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest { guest, host, count } => write!(f, "guest:{guest}:{host}:{count}"),
            Self::Host { host, guest, count } => write!(f, "host:{host}:{guest}:{count}"),
            Self::SquashGuest { guest, host, count } => write!(f, "squash-guest:{guest}:{host}:{count}"),
            Self::SquashHost { host, guest, count } => write!(f, "squash-host:{host}:{guest}:{count}"),
            Self::ForbidGuest { guest, count } => write!(f, "forbid-guest:{guest}:{count}"),
            Self::Map { guest, host, count } => write!(f, "map:{guest}:{host}:{count}"),
        }
    }
}
