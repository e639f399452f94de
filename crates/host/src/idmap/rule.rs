//! One rule of a translation, as it stands on the command line.

use std::{fmt, str::FromStr};

/// A rule: `count` ids from the first named one on, and what they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `guest:G:H:N`: guest ids from G become host ids from H, one to one.
    Guest {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// How many.
        count: u32,
    },
    /// `host:H:G:N`: host ids from H become guest ids from G, one to one.
    Host {
        /// First id on the host.
        host: u32,
        /// First id in the guest.
        guest: u32,
        /// How many.
        count: u32,
    },
    /// `squash-guest:G:H:N`: guest ids from G all become the host id H.
    SquashGuest {
        /// First id in the guest.
        guest: u32,
        /// The one id on the host.
        host: u32,
        /// How many.
        count: u32,
    },
    /// `squash-host:H:G:N`: host ids from H all become the guest id G.
    SquashHost {
        /// First id on the host.
        host: u32,
        /// The one id in the guest.
        guest: u32,
        /// How many.
        count: u32,
    },
    /// `forbid-guest:G:N`: guest ids from G are refused with EPERM.
    ForbidGuest {
        /// First id in the guest.
        guest: u32,
        /// How many.
        count: u32,
    },
    /// `map:G:H:N`: `guest:G:H:N` and `host:H:G:N` in one.
    Map {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// How many.
        count: u32,
    },
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is no separator behind the first word.
    #[error("rule '{0}' has no numbers; an example of a rule is 'map:0:100000:65536'")]
    NoNumbers(String),
    /// The first word is none of the six.
    #[error("rule '{0}' begins with none of guest, host, squash-guest, squash-host, forbid-guest, map")]
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
        /// How many this kind of rule takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
}

impl Rule {
    /// All ids of the guest become `host`, and all of the host appear as `guest`.
    pub fn squash_all(host: u32, guest: u32) -> [Self; 2] {
        // The last id is no id: it stands for "no change" in system calls.
        let count = u32::MAX;
        [Self::SquashGuest { guest: 0, host, count }, Self::SquashHost { host: 0, guest, count }]
    }
}

/// Reads a rule. The separator is the first character that no word has, `:` by custom, and the same throughout.
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
