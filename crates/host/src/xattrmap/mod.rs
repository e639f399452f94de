//! Translation of extended attribute names between the guest (the client) and the host (the server).
//!
//! [`XattrMap`] is a list of rules in the syntax of `--xattrmap`, which [`parse`] implements. The first rule that
//! matches a name decides. A name that no rule matches is treated as under `bad`, so that an incomplete list hides
//! rather than leaks. Names are bytes. A map is immutable, so there are no locks.
//!
//! If `security.capability` is renamed, the host's kernel no longer removes it when a file changes; the caller then
//! has to: see [`XattrMap::to_server`].

mod parse;

pub use parse::{ParseError, Problem};

use std::borrow::Cow;

use rustix::io::Errno;
use transom_wire::limits::XATTR_NAME_LEN_MAX;

/// Rules in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrMap {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    action: Action,
    scope: Scope,
    /// Prefix of the client's names that the rule matches.
    key: Vec<u8>,
    /// Prefix of the server's names that the rule matches, which [`Action::Prefix`] prepends to the client's.
    prepend: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Prepend `prepend` to the client's name, and strip it from the server's.
    Prefix,
    /// Pass the name unchanged.
    Ok,
    /// Refuse the client's name with EPERM, hide the server's.
    Bad,
    /// Refuse the client's name with EOPNOTSUPP, hide the server's.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Client,
    Server,
    All,
}

impl XattrMap {
    /// Translates `name`, with which the guest reads, sets or removes an attribute, to the host's name.
    ///
    /// # Errors
    ///
    /// EPERM and EOPNOTSUPP according to the rules; ERANGE if the host's name has more than 255 bytes, as Linux
    /// returns for a name that long.
    pub fn to_server<'a>(&self, name: &'a [u8]) -> Result<Cow<'a, [u8]>, Errno> {
        let rule = self.rules.iter().find(|rule| rule.scope != Scope::Server && name.starts_with(&rule.key));
        let Some(rule) = rule else { return Err(Errno::PERM) };
        let mapped = match rule.action {
            Action::Ok => Cow::Borrowed(name),
            Action::Prefix => Cow::Owned([rule.prepend.as_slice(), name].concat()),
            Action::Bad => return Err(Errno::PERM),
            Action::Unsupported => return Err(Errno::OPNOTSUPP),
        };
        if mapped.len() > XATTR_NAME_LEN_MAX { Err(Errno::RANGE) } else { Ok(mapped) }
    }

    /// Translates `name`, which an inode has on the host, to the guest's name. Returns `None` if the guest must not
    /// see it.
    pub fn to_client<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let rule = self.rules.iter().find(|rule| rule.scope != Scope::Client && name.starts_with(&rule.prepend))?;
        match rule.action {
            Action::Ok => Some(name),
            Action::Prefix => Some(&name[rule.prepend.len()..]).filter(|stripped| !stripped.is_empty()),
            Action::Bad | Action::Unsupported => None,
        }
    }

    /// Translates `list`, the host's list of NUL-terminated names, to the names that the guest sees.
    ///
    /// The result is never longer than `list`.
    pub fn filter_list(&self, list: &[u8]) -> Vec<u8> {
        let mut seen = Vec::with_capacity(list.len());
        for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            if let Some(name) = self.to_client(name) {
                seen.extend_from_slice(name);
                seen.push(0);
            }
        }
        seen
    }
}

#[cfg(test)]
#[path = "xattrmap_test.rs"]
mod xattrmap_test;
