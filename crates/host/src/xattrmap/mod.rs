//! Names of extended attributes, translated between the guest (the client) and the host (the server).
//!
//! [`XattrMap`] is a list of rules as `--xattrmap` takes it; [`parse`] has the language. The first rule that matches a
//! name decides. A name that no rule matches is treated as under `bad`, so that an incomplete list hides rather than
//! leaks. Names are bytes. A map does not change after it is made; there are no locks.
//!
//! Where `security.capability` gets another name, the host's kernel no longer removes it when a file changes: the
//! caller then does, see [`XattrMap::to_server`].

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
    /// How names from the client begin that the rule matches.
    key: Vec<u8>,
    /// How names from the server begin that the rule matches, and what [`Action::Prefix`] puts before the client's.
    prepend: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The client's name gets `prepend` before it, the server's loses it.
    Prefix,
    /// The name passes as it is.
    Ok,
    /// The client gets EPERM, the server's name is hidden.
    Bad,
    /// The client gets EOPNOTSUPP, the server's name is hidden.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Client,
    Server,
    All,
}

impl XattrMap {
    /// Returns the host's name for `name`, with which the guest reads, sets or removes an attribute.
    ///
    /// # Errors
    ///
    /// EPERM and EOPNOTSUPP as the rules say; ERANGE if the host's name has more than 255 bytes, as Linux answers to a
    /// name that long.
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

    /// Returns the guest's name for `name`, which an inode has on the host; `None` if the guest does not see it.
    pub fn to_client<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let rule = self.rules.iter().find(|rule| rule.scope != Scope::Client && name.starts_with(&rule.prepend))?;
        match rule.action {
            Action::Ok => Some(name),
            Action::Prefix => Some(&name[rule.prepend.len()..]).filter(|stripped| !stripped.is_empty()),
            Action::Bad | Action::Unsupported => None,
        }
    }

    /// Returns the names that the guest sees of `list`, which is what the host answered: names, each with a NUL.
    ///
    /// The answer is never longer than `list`.
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
