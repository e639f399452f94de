//! Ranges of user and group ids, and their syntax.
//!
//! `NamespaceRange` configures the kernel's user namespace. `Squash` is a preset of the rules by which the file system
//! translates ids. Both apply to uids and gids alike.

use std::fmt;
use std::str::FromStr;
use transom_host::idmap::Rule;

/// A range of a user namespace, written `:inside:outside:count:` with any delimiter that is not a letter or digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceRange {
    /// The first id as the daemon and the guest see it.
    pub inside: u32,
    /// The first id as the host sees it.
    pub outside: u32,
    /// The number of ids.
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

/// Maps all owners to one: files that a guest creates or changes the owner of belong to `host` on the host, and every
/// file that the guest sees belongs to `guest`.
///
/// This translates ids and restricts no access: the guest's operations run with the rights of the daemon, whoever owns
/// the file on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squash {
    /// The owner on the host; `None` is the user that runs the daemon.
    pub host: Option<Owner>,
    /// The owner that the guest sees.
    pub guest: Owner,
}

impl Squash {
    /// Returns the equivalent rules for uids and for gids. `daemon` is the user that runs the daemon.
    pub fn rules(&self, daemon: Owner) -> ([Rule; 2], [Rule; 2]) {
        let host = self.host.unwrap_or(daemon);
        (Rule::squash_all(host.uid, self.guest.uid), Rule::squash_all(host.gid, self.guest.gid))
    }
}

/// Parses the value of `--squash-to`: `UID:GID`, or `self`.
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
