//! What is counted for a request, and medians of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a daemon did: in total, or for one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions in user space, without those of the C library's memory and string functions.
    pub instructions: f64,
    /// Instructions of the C library's memory and string functions, which it chooses by the processor.
    pub library_instructions: f64,
    /// System calls by name, reads of a clock excepted.
    pub system_calls: BTreeMap<String, f64>,
    /// Calls of `malloc`, `calloc`, `realloc` and their like.
    pub allocations: f64,
    /// Bytes that were asked for in these calls.
    pub allocated_bytes: f64,
    /// Bytes copied by calls of `memcpy`, `memmove` and `mempcpy`.
    pub copied_bytes: f64,
    /// Reads of a clock, by the vDSO or by a system call.
    pub clock_reads: f64,
    /// Threads of the daemon woken by a futex, and writes to eventfds other than the guest's.
    pub wakes: f64,
    /// Times that the guest was notified.
    pub notifications: f64,
}

const FIELDS: usize = 8;

impl Counts {
    /// Returns the number of system calls of all names.
    pub fn all_system_calls(&self) -> f64 {
        self.system_calls.values().sum()
    }

    /// Adds one system call named `name`.
    pub(super) fn add_system_call(&mut self, name: &str) {
        match self.system_calls.get_mut(name) {
            Some(count) => *count += 1.0,
            None => {
                self.system_calls.insert(name.to_owned(), 1.0);
            }
        }
    }

    /// Returns what was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let fields: Vec<f64> = self.fields().iter().zip(before.fields()).map(|(now, before)| now - before).collect();
        let calls = self.system_calls.iter().map(|(name, now)| {
            let before = before.system_calls.get(name).copied().unwrap_or_default();
            (name.clone(), now - before)
        });
        Self::from_fields(&fields, calls.collect())
    }

    /// Returns what was counted besides `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.since(other);
        rest.system_calls.retain(|_, count| *count != 0.0);
        rest
    }

    /// Returns the share of one of `count`.
    pub(super) fn divided_by(&self, count: f64) -> Self {
        let fields: Vec<f64> = self.fields().iter().map(|value| value / count).collect();
        let calls = self.system_calls.iter().map(|(name, value)| (name.clone(), value / count)).collect();
        Self::from_fields(&fields, calls)
    }

    /// Returns the medians over `all`, of each count by itself. System calls whose median is 0 are left out.
    pub(super) fn medians(all: &[Self]) -> Self {
        let fields: Vec<f64> = (0..FIELDS).map(|field| median(all.iter().map(|one| one.fields()[field]))).collect();
        let names = all.iter().flat_map(|one| one.system_calls.keys().cloned());
        let calls = names.map(|name| {
            let value = median(all.iter().map(|one| one.system_calls.get(&name).copied().unwrap_or_default()));
            (name, value)
        });
        Self::from_fields(&fields, calls.filter(|(_, count)| *count > 0.0).collect())
    }

    fn fields(&self) -> [f64; FIELDS] {
        [
            self.instructions,
            self.library_instructions,
            self.allocations,
            self.allocated_bytes,
            self.copied_bytes,
            self.clock_reads,
            self.wakes,
            self.notifications,
        ]
    }

    fn from_fields(fields: &[f64], system_calls: BTreeMap<String, f64>) -> Self {
        Self {
            instructions: fields[0],
            library_instructions: fields[1],
            system_calls,
            allocations: fields[2],
            allocated_bytes: fields[3],
            copied_bytes: fields[4],
            clock_reads: fields[5],
            wakes: fields[6],
            notifications: fields[7],
        }
    }
}

/// Returns the middle value; of an even number of values the lower one of the two, so that a whole number stays one.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
#[path = "counts_test.rs"]
mod tests;
