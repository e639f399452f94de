//! What a guest was refused: counted, for the end of the run.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Destinations that are told apart. A guest can ask for any number; the rest are counted together.
const DESTINATIONS_MAX: usize = 64;

/// A destination that was refused or could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The name, with the port if the guest got as far as naming one; `None` for all that are not listed themselves.
    pub host: Option<String>,
    /// Why.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By destination and reason. Protected by itself.
    counts: Mutex<BTreeMap<(Option<String>, String), u64>>,
}

impl Counts {
    /// Counts one. `host` is the guest's: what does not belong into a name is replaced.
    pub(super) fn add(&self, host: &str, reason: &str) {
        let is_plain = |&letter: &char| letter.is_ascii_graphic();
        let host: String = host.chars().map(|letter| if is_plain(&letter) { letter } else { '?' }).collect();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = counts.len() >= DESTINATIONS_MAX;
        let key = (Some(host), reason.to_owned());
        match counts.get_mut(&key) {
            Some(count) => *count += 1,
            None if is_full => *counts.entry((None, "further destinations".into())).or_default() += 1,
            None => drop(counts.insert(key, 1)),
        }
    }

    /// Returns all, in the order of their names.
    pub(super) fn list(&self) -> Vec<Refused> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |((host, reason), &count): (&(Option<String>, String), &u64)| Refused {
            host: host.clone(),
            reason: reason.clone(),
            count,
        };
        // The nameless one is the first of a sorted map, and the last of a list.
        let (rest, named): (Vec<_>, Vec<_>) = counts.iter().map(refused).partition(|refused| refused.host.is_none());
        named.into_iter().chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_asks_for_everything_fills_no_memory_and_no_terminal() {
        let counts = Counts::default();
        for number in 0..10_000 {
            counts.add(&format!("n{}.example", number % 5000), "not allowed");
        }
        counts.add("n0.example", "not allowed");
        let list = counts.list();
        assert_eq!(list.len(), DESTINATIONS_MAX + 1);
        assert_eq!(list.iter().map(|refused| refused.count).sum::<u64>(), 10_001);
        assert_eq!(list.last().and_then(|refused| refused.host.clone()), None);
        let counts = Counts::default();
        counts.add("a\x1b[2Jb\u{202e}", "not allowed");
        assert_eq!(counts.list()[0].host.as_deref(), Some("a?[2Jb?"));
    }
}
