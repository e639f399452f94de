//! How long fetched data may be used.

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
}

/// The deadline until which data may be used without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Validity {
    /// In nanoseconds of the platform's clock; 0 means never.
    until_ns: u64,
}

impl Validity {
    /// Already expired.
    pub(crate) const NEVER: Self = Self { until_ns: 0 };

    /// Returns the validity in a reply that came at `now_ns`, given in seconds and nanoseconds, as adjusted by `mode`.
    pub(crate) fn of_reply(mode: CacheMode, now_ns: u64, seconds: u64, nanoseconds: u32) -> Self {
        let until_ns = match mode {
            CacheMode::None => 0,
            CacheMode::Always => u64::MAX,
            CacheMode::Auto if seconds == 0 && nanoseconds == 0 => 0,
            CacheMode::Auto => {
                let for_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.min(999_999_999).into());
                now_ns.saturating_add(for_ns)
            }
        };
        Self { until_ns }
    }

    /// Returns whether cached data may still be used; the only place that decides this. Reads the clock only if it
    /// matters.
    pub(crate) fn is_valid(self, now_ns: impl FnOnce() -> u64) -> bool {
        self.until_ns == u64::MAX || self.until_ns != 0 && now_ns() < self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_holds_as_long_as_the_mode_lets_it() {
        let of = |mode, seconds, nanoseconds| Validity::of_reply(mode, 10, seconds, nanoseconds);
        assert!(!of(CacheMode::None, 1, 0).is_valid(|| 10));
        assert!(!of(CacheMode::Auto, 0, 0).is_valid(|| 0));
        assert!(of(CacheMode::Auto, 1, 5).is_valid(|| 1_000_000_014));
        assert!(!of(CacheMode::Auto, 1, 5).is_valid(|| 1_000_000_015));
        assert!(of(CacheMode::Auto, u64::MAX, u32::MAX).is_valid(|| u64::MAX - 1));
        assert!(of(CacheMode::Always, 0, 0).is_valid(|| u64::MAX - 1));
        assert!(!Validity::NEVER.is_valid(|| 0));
    }
}
