//! The list of tests that fail over a mount, each with its reason.
//!
//! A line is `TEST MODES REASON`. MODES are the mounts it holds for, separated by `|`: a cache mode, with
//! `,passthrough` or without, or `*` for each. Lines that begin with `#` are comments.

use anyhow::Context as _;

/// A parsed list.
pub(super) struct Exceptions(Vec<Exception>);

struct Exception {
    test: String,
    modes: String,
    reason: String,
}

impl Exceptions {
    /// # Errors
    /// A line has no reason.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parsed = lines.map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut word = || Some(words.next()?.trim().to_owned()).filter(|word| !word.is_empty());
            let (test, modes, reason) = (word(), word(), word());
            let exception =
                test.zip(modes).zip(reason).map(|((test, modes), reason)| Exception { test, modes, reason });
            exception.with_context(|| format!("an exception without a reason: {line}"))
        });
        Ok(Self(parsed.collect::<anyhow::Result<_>>()?))
    }

    /// Returns why `test` may fail on a mount of `mode`, if it may.
    pub(super) fn reason(&self, test: &str, mode: &str) -> Option<&str> {
        let applies = |exception: &&Exception| {
            exception.test == test && exception.modes.split('|').any(|one| one == "*" || one == mode)
        };
        self.0.iter().find(applies).map(|exception| exception.reason.as_str())
    }
}
