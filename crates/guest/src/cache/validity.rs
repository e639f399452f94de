//! How long fetched data may be used.

use transom_versions::Moment;

/// Who decides how long data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// Nothing is cached: every access asks the server.
    None,
    /// The server decides, by the times in its replies.
    #[default]
    Auto,
    /// Nobody else changes the share: data is cached until this guest changes it.
    Always,
    /// The version table of the daemon's coherence group decides: data is cached until any guest changes it. Without
    /// a table, this is [`Self::None`].
    Shared,
}

/// How long data may be used without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Validity(Limit);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// A deadline in nanoseconds of the platform's clock; 0 means never.
    Deadline(u64),
    /// The next change after the data was fetched.
    Change { fetched: Moment },
}

impl Default for Limit {
    fn default() -> Self {
        Self::Deadline(0)
    }
}

/// What decides whether data of one inode is still valid.
pub(crate) trait Judge {
    /// Returns the time in nanoseconds of the platform's clock.
    fn now_ns(&self) -> u64;

    /// Returns whether the inode has not changed since `fetched`.
    fn is_unchanged(&self, fetched: Moment) -> bool;
}

impl Validity {
    /// Already expired.
    pub(crate) const NEVER: Self = Self(Limit::Deadline(0));

    /// Returns the validity in a reply that came at `now_ns`, given in seconds and nanoseconds, as adjusted by `mode`.
    /// `fetched` is the moment before its request was sent, if there is a version table.
    pub(crate) fn of_reply(
        mode: CacheMode,
        fetched: Option<Moment>,
        now_ns: impl FnOnce() -> u64,
        seconds: u64,
        nanoseconds: u32,
    ) -> Self {
        let until_ns = match mode {
            CacheMode::None => 0,
            CacheMode::Always => u64::MAX,
            CacheMode::Auto if seconds == 0 && nanoseconds == 0 => 0,
            CacheMode::Auto => {
                let for_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.min(999_999_999).into());
                now_ns().saturating_add(for_ns)
            }
            CacheMode::Shared => return fetched.map_or(Self::NEVER, |fetched| Self(Limit::Change { fetched })),
        };
        Self(Limit::Deadline(until_ns))
    }

    /// Returns whether cached data may still be used; the only place that decides this. Reads the clock only if it
    /// matters.
    pub(crate) fn is_valid(self, judge: &impl Judge) -> bool {
        match self.0 {
            Limit::Deadline(u64::MAX) => true,
            Limit::Deadline(until_ns) => until_ns != 0 && judge.now_ns() < until_ns,
            Limit::Change { fetched } => judge.is_unchanged(fetched),
        }
    }

    /// Returns the validity of data of which one part has this validity and the other `other`, both in the same mode.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Limit::Deadline(one), Limit::Deadline(other)) => Self(Limit::Deadline(one.min(other))),
            // Clocks of different epochs cannot be compared.
            (Limit::Change { fetched: one }, Limit::Change { fetched: other }) if one.epoch != other.epoch => {
                Self::NEVER
            }
            (Limit::Change { fetched: one }, Limit::Change { fetched: other }) => {
                let fetched = if one.clock <= other.clock { one } else { other };
                Self(Limit::Change { fetched })
            }
            (Limit::Deadline(_), Limit::Change { .. }) | (Limit::Change { .. }, Limit::Deadline(_)) => Self::NEVER,
        }
    }
}

#[cfg(test)]
#[path = "validity_test.rs"]
mod tests;
