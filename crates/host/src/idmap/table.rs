//! One direction of a translation: sorted ranges, looked up by binary search.

use super::Rule;

/// Ranges of ids and their targets, sorted and without overlaps.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    entries: Box<[Entry]>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    first: u32,
    last: u32,
    target: Target,
}

/// The target of a range.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// Consecutive ids starting at this one.
    From(u32),
    /// This id for the whole range.
    One(u32),
    /// None: the id is refused.
    Forbidden,
}

/// Why a set of rules is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A range does not fit below the last number, which is not an id.
    #[error("rule '{rule}' extends past the last id: {first} plus {count} exceeds {max}", max = u32::MAX)]
    Range {
        /// The rule.
        rule: Rule,
        /// The first id of the range.
        first: u32,
        /// The rule's number of ids.
        count: u32,
    },
    /// Two rules name the same id.
    #[error("rules '{one}' and '{other}' both translate id {id} from {direction}")]
    Overlap {
        /// The rule with the lower first id.
        one: Rule,
        /// The other rule.
        other: Rule,
        /// The first id that both name.
        id: u32,
        /// `guest to host` or `host to guest`.
        direction: &'static str,
    },
}

impl Table {
    pub(super) fn builder(direction: &'static str) -> TableBuilder {
        TableBuilder { direction, entries: Vec::new() }
    }

    /// Returns the translation of `id`, which is `id` itself without a rule, or `None` if it is forbidden.
    pub(super) fn translate(&self, id: u32) -> Option<u32> {
        let behind = self.entries.partition_point(|entry| entry.first <= id);
        match behind.checked_sub(1).map(|at| self.entries[at]).filter(|entry| id <= entry.last) {
            None => Some(id),
            Some(Entry { first, target: Target::From(base), .. }) => Some(base + (id - first)),
            Some(Entry { target: Target::One(only), .. }) => Some(only),
            Some(Entry { target: Target::Forbidden, .. }) => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Builds a [`Table`].
pub(super) struct TableBuilder {
    direction: &'static str,
    entries: Vec<(Entry, Rule)>,
}

impl TableBuilder {
    /// Adds `count` ids from `first` on for `rule`.
    pub(super) fn add(&mut self, rule: &Rule, first: u32, count: u32, target: Target) -> Result<(), MapError> {
        Self::check(rule, first, count)?;
        match target {
            Target::From(base) => Self::check(rule, base, count)?,
            Target::One(only) => Self::check(rule, only, 1)?,
            Target::Forbidden => {}
        }
        if let Some(more) = count.checked_sub(1) {
            self.entries.push((Entry { first, last: first + more, target }, *rule));
        }
        Ok(())
    }

    pub(super) fn build(mut self) -> Result<Table, MapError> {
        self.entries.sort_by_key(|(entry, _)| entry.first);
        for pair in self.entries.windows(2) {
            let ((before, one), (after, other)) = (pair[0], pair[1]);
            if after.first <= before.last {
                return Err(MapError::Overlap { one, other, id: after.first, direction: self.direction });
            }
        }
        Ok(Table { entries: self.entries.into_iter().map(|(entry, _)| entry).collect() })
    }

    fn check(rule: &Rule, first: u32, count: u32) -> Result<(), MapError> {
        match first.checked_add(count) {
            Some(_) => Ok(()),
            None => Err(MapError::Range { rule: *rule, first, count }),
        }
    }
}
