//! The syntax of the rules: `:TYPE:SCOPE:KEY:PREPEND:` and the short `:map:KEY:PREPEND:`.
//!
//! The separator is the first byte of each rule. White space is allowed before and after rules; inside a field it is
//! part of the field.

use std::str::FromStr;

use super::{Action, Rule, Scope, XattrMap};

/// Why a text is not a valid list of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule} of the map of extended attributes {problem}")]
pub struct ParseError {
    /// The number of the rule, starting at 1.
    pub rule: usize,
    /// The problem with it.
    pub problem: Problem,
}

/// The problem with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text has no rules.
    #[error("is missing: at least one is needed")]
    Missing,
    /// The text ends inside a rule.
    #[error("has no '{separator}' after '{field}'")]
    Unfinished {
        /// The rule's separator.
        separator: char,
        /// The unterminated field.
        field: String,
    },
    /// The first byte of a rule is not ASCII.
    #[error("begins with a separator that is not ASCII")]
    Separator,
    /// An unknown type.
    #[error("has type '{0}'; known are prefix, ok, bad, unsupported and map")]
    Type(String),
    /// An unknown scope.
    #[error("has scope '{0}'; known are client, server and all")]
    Scope(String),
    /// A NUL, which no name contains.
    #[error("has a NUL in '{0}'")]
    Nul(String),
    /// A rule after `map`, which matches every name.
    #[error("follows a map rule, which must be the only one of its type and the last rule")]
    AfterMap,
}

impl XattrMap {
    /// Parses rules; the module documentation describes the syntax.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let mut rules = Vec::new();
        let mut rest = text.trim_ascii();
        let mut rule = 1;
        while !rest.is_empty() {
            let mut fields = Fields::begin(rest).map_err(|problem| ParseError { rule, problem })?;
            let is_map = fields.rule(&mut rules).map_err(|problem| ParseError { rule, problem })?;
            rest = fields.rest.trim_ascii_start();
            rule += 1;
            if is_map && !rest.is_empty() {
                return Err(ParseError { rule, problem: Problem::AfterMap });
            }
        }
        if rules.is_empty() { Err(ParseError { rule, problem: Problem::Missing }) } else { Ok(Self { rules }) }
    }
}

impl FromStr for XattrMap {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text.as_bytes())
    }
}

/// The fields of one rule.
struct Fields<'a> {
    separator: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn begin(text: &'a [u8]) -> Result<Self, Problem> {
        match text.split_first() {
            Some((&separator, rest)) if separator.is_ascii() => Ok(Self { separator, rest }),
            _ => Err(Problem::Separator),
        }
    }

    /// Parses a rule into `rules`, as several rules if it is a `map`; returns whether it is one.
    fn rule(&mut self, rules: &mut Vec<Rule>) -> Result<bool, Problem> {
        let action = match self.next()? {
            b"map" => {
                let (key, prepend) = (self.name()?, self.name()?);
                rules.extend(expand_map(key, prepend));
                return Ok(true);
            }
            b"prefix" => Action::Prefix,
            b"ok" => Action::Ok,
            b"bad" => Action::Bad,
            b"unsupported" => Action::Unsupported,
            other => return Err(Problem::Type(lossy(other))),
        };
        let scope = match self.next()? {
            b"client" => Scope::Client,
            b"server" => Scope::Server,
            b"all" => Scope::All,
            other => return Err(Problem::Scope(lossy(other))),
        };
        rules.push(Rule { action, scope, key: self.name()?, prepend: self.name()? });
        Ok(false)
    }

    fn next(&mut self) -> Result<&'a [u8], Problem> {
        let Some(end) = self.rest.iter().position(|&byte| byte == self.separator) else {
            return Err(Problem::Unfinished { separator: self.separator.into(), field: lossy(self.rest) });
        };
        let field = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(field)
    }

    fn name(&mut self) -> Result<Vec<u8>, Problem> {
        let field = self.next()?;
        if field.contains(&0) { Err(Problem::Nul(lossy(field))) } else { Ok(field.to_vec()) }
    }
}

/// Expands `map`: names that begin with `key` get `prepend`, with no way around that.
fn expand_map(key: Vec<u8>, prepend: Vec<u8>) -> Vec<Rule> {
    let rule = |action, key: &[u8], prepend: &[u8]| Rule {
        action,
        scope: Scope::All,
        key: key.to_vec(),
        prepend: prepend.to_vec(),
    };
    let prefix = rule(Action::Prefix, &key, &prepend);
    if key.is_empty() {
        // Everything has the prefix; the host's other names are hidden from the guest.
        return vec![prefix, rule(Action::Bad, b"", b"")];
    }
    // The guest can neither reach the prefixed names directly nor see the host's own names that begin with the key.
    vec![prefix, rule(Action::Bad, &prepend, &key), rule(Action::Ok, b"", b"")]
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
