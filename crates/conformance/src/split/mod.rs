//! Each case split between two guests of one directory: one acts, the other looks.
//!
//! [`Split`] is a client made of two. Calls that change something go to the one that acts, calls that only tell
//! something to the other, and the case asserts what it always does: so the guest that looks must see every change of
//! the other. Before each change it looks at what is about to change, so that a cache that nobody corrects is caught.
//!
//! A guest that is told of changes at once has to be right at once. One that follows within some time is given
//! `patience`: it is asked again until it answers as the guest that acts does.
//!
//! [`known::SPLIT`] names the cases that cannot be split, and why; [`divide`] leaves them out.

mod acts;
mod client;
mod files;
mod looks;
mod mounts;

use std::borrow::Cow;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::case::Definition;
use crate::client::{Client, Result};
use crate::compare::{Allowed, parse_allowed};
use crate::known;
use crate::report::{Report, Status};
use files::Files;
pub use mounts::Mounts;

/// How long the guest that looks rests before it is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Two clients of one directory as one.
pub struct Split<'c> {
    acting: &'c dyn Client,
    looking: &'c dyn Client,
    /// What the looking client's paths begin with: both may be one kernel, which has one current directory.
    beneath: &'c [u8],
    patience: Option<Duration>,
    files: Mutex<Files>,
}

impl<'c> Split<'c> {
    /// Makes one client of two that stand in the same directory; `looking` finds it at `beneath`, which is empty or
    /// ends with a slash.
    ///
    /// Without `patience`, the first answer counts.
    pub fn new(acting: &'c dyn Client, looking: &'c dyn Client, beneath: &'c [u8], patience: Option<Duration>) -> Self {
        Self { acting, looking, beneath, patience, files: Mutex::default() }
    }

    /// Returns `path` as the looking client knows it.
    fn seen<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        if self.beneath.is_empty() || path.is_empty() || path.starts_with(b"/") {
            return Cow::Borrowed(path);
        }
        Cow::Owned([self.beneath, path].concat())
    }

    /// Returns what `looking` answers; with patience, once that `agrees` with what `acting` answers, or time is up.
    fn settled<T>(
        &self,
        looking: impl Fn() -> Result<T>,
        acting: impl Fn() -> Result<T>,
        agrees: impl Fn(&T, &T) -> bool,
    ) -> Result<T> {
        if self.patience.is_none() {
            return looking();
        }
        let mut may_retry = self.retries();
        loop {
            let found = looking();
            let is_settled = match (&found, &acting()) {
                (Ok(found), Ok(expected)) => agrees(found, expected),
                (Err(found), Err(expected)) => found == expected,
                _ => false,
            };
            if is_settled || !may_retry() {
                return found;
            }
        }
    }

    /// Returns a function that rests, and returns whether there is time for another look.
    fn retries(&self) -> impl FnMut() -> bool {
        let deadline = self.patience.map(|patience| Instant::now() + patience);
        move || {
            let has_time = deadline.is_some_and(|deadline| Instant::now() < deadline);
            if has_time {
                thread::sleep(PAUSE);
            }
            has_time
        }
    }
}

/// Divides cases into those that can be split, and the reports of those that cannot.
pub fn divide(cases: impl IntoIterator<Item = Definition>) -> (Vec<Definition>, Vec<Report>) {
    let whole = parse_allowed(known::SPLIT).expect("a test parses the list");
    let (mut split, mut left) = (Vec::new(), Vec::new());
    for case in cases {
        match whole.iter().find(|entry| entry.covers(case.name, "status")).map(Allowed::reason) {
            None => split.push(case),
            Some(reason) => left.push(Report {
                name: case.name.to_owned(),
                status: Status::Skipped,
                reason: format!("not for two guests: {reason}"),
                observations: String::new(),
            }),
        }
    }
    (split, left)
}

#[cfg(test)]
#[path = "split_test.rs"]
mod tests;
