//! Ranges of user and group ids, and how they are written.
//!
//! `NamespaceRange` belongs to the kernel's user namespace, `Translation` to the daemon, `Squash` is a preset of
//! translations. All three serve uids and gids alike.

use std::fmt;
use std::str::FromStr;

/// A range of a user namespace, written `:inside:outside:count:` with any delimiter that is no letter or digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceRange {
    /// The first id as the daemon and the guest see it.
    pub inside: u32,
    /// The first id as the host sees it.
    pub outside: u32,
    /// How many ids.
    pub count: u32,
}

impl FromStr for NamespaceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let delimiter = text.chars().next_back().ok_or("the range is empty")?;
        let inner = text.strip_suffix(delimiter).and_then(|text| text.strip_prefix(delimiter));
        let inner = inner
            .filter(|_| !delimiter.is_alphanumeric())
            .ok_or("a range begins and ends with its delimiter, as in ':0:100000:65536:'")?;
        match numbers(inner, delimiter)?[..] {
            [inside, outside, count] => Ok(Self { inside, outside, count }),
            ref fields => Err(format!("a range has 3 numbers (inside, outside, count), this one has {}", fields.len())),
        }
    }
}

impl fmt::Display for NamespaceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}:{}:{}:", self.inside, self.outside, self.count)
    }
}

/// One translation of ids between guest and host.
///
/// `guest`, `host` and the first number of the others is the first id of the range that is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translation {
    /// `guest:G:H:N`: guest ids from G become host ids from H, one to one.
    GuestToHost {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// How many.
        count: u32,
    },
    /// `host:H:G:N`: host ids from H become guest ids from G, one to one.
    HostToGuest {
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
    /// `forbid-guest:G:N`: guest ids from G are refused.
    ForbidGuest {
        /// First id in the guest.
        guest: u32,
        /// How many.
        count: u32,
    },
    /// `map:G:H:N`: guest ids from G are host ids from H, one to one, both ways.
    Both {
        /// First id in the guest.
        guest: u32,
        /// First id on the host.
        host: u32,
        /// How many.
        count: u32,
    },
}

impl FromStr for Translation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_kind = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let (at, delimiter) = text
            .char_indices()
            .find(|&(_, c)| !is_kind(c))
            .ok_or_else(|| format!("'{text}' has no numbers; an example is 'map:0:100000:65536'"))?;
        let kind = text[..at].to_lowercase();
        let fields = numbers(&text[at + delimiter.len_utf8()..], delimiter)?;
        match (kind.as_str(), &fields[..]) {
            ("guest", &[guest, host, count]) => Ok(Self::GuestToHost { guest, host, count }),
            ("host", &[host, guest, count]) => Ok(Self::HostToGuest { host, guest, count }),
            ("squash-guest", &[guest, host, count]) => Ok(Self::SquashGuest { guest, host, count }),
            ("squash-host", &[host, guest, count]) => Ok(Self::SquashHost { host, guest, count }),
            ("forbid-guest", &[guest, count]) => Ok(Self::ForbidGuest { guest, count }),
            ("map", &[guest, host, count]) => Ok(Self::Both { guest, host, count }),
            ("forbid-guest", _) => Err(format!("forbid-guest takes 2 numbers, not {}", fields.len())),
            ("guest" | "host" | "squash-guest" | "squash-host" | "map", _) => {
                Err(format!("{kind} takes 3 numbers, not {}", fields.len()))
            }
            _ => Err(format!("'{kind}' is not one of guest, host, squash-guest, squash-host, forbid-guest, map")),
        }
    }
}

/// A uid and a gid, written `UID:GID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match numbers(text, ':')?[..] {
            [uid, gid] if uid != u32::MAX && gid != u32::MAX => Ok(Self { uid, gid }),
            [_, _] => Err(format!("{} is nobody's id", u32::MAX)),
            _ => Err(format!("'{text}' is not a uid and a gid, as in 1000:1000")),
        }
    }
}

/// One owner for everything: whatever a guest does is done by `host`, and whatever it sees belongs to `guest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squash {
    /// The owner on the host; `None`: the user that runs the daemon.
    pub host: Option<Owner>,
    /// The owner that the guest sees.
    pub guest: Owner,
}

impl Squash {
    /// The translations of uids and of gids that do the same, `daemon` being the user that runs the daemon.
    pub fn translations(&self, daemon: Owner) -> (Vec<Translation>, Vec<Translation>) {
        // Every id but the last, which stands for "no id" in system calls.
        let count = u32::MAX;
        let both = |host, guest| {
            vec![Translation::SquashGuest { guest: 0, host, count }, Translation::SquashHost { host: 0, guest, count }]
        };
        let host = self.host.unwrap_or(daemon);
        (both(host.uid, self.guest.uid), both(host.gid, self.guest.gid))
    }
}

/// Reads the value of `--squash-to`: `UID:GID`, or `self`.
pub(crate) fn squash_host(text: &str) -> Result<SquashHost, String> {
    match text {
        "self" => Ok(SquashHost(None)),
        _ => Ok(SquashHost(Some(text.parse()?))),
    }
}

/// The value of `--squash-to`; `None` is `self`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SquashHost(pub(crate) Option<Owner>);

fn numbers(text: &str, delimiter: char) -> Result<Vec<u32>, String> {
    text.split(delimiter)
        .map(|field| field.parse().map_err(|_| format!("'{field}' is not a number from 0 to {}", u32::MAX)))
        .collect()
}
