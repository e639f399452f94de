//! One case: its definition, its environment, and its outcome.
//!
//! A case numbers its steps with [`Case::step`]; a failure names the step, the line, and the expected and actual
//! results. What depends on the underlying file system is not judged but recorded as an observation, and judged by
//! comparing two runs.

use std::fmt::{Debug, Display};
use std::ops::Deref;
use std::sync::Mutex;

use crate::client::{Errno, Result};
use crate::fs::Fs;
pub use crate::stop::{Outcome, Stop, name_of};

/// A case of the list.
#[derive(Clone, Copy)]
pub struct Definition {
    /// `subject/behaviour-and-outcome`.
    pub name: &'static str,
    /// The steps.
    pub run: fn(&Case<'_>) -> Outcome,
}

/// A case that runs: its view of its own fresh directory, its steps, and what it observed.
pub struct Case<'c> {
    fs: Fs<'c>,
    notes: &'c Notes,
}

/// What a run leaves behind; readable while the case still runs.
#[derive(Default)]
pub struct Notes {
    step: Mutex<(usize, String)>,
    observations: Mutex<Vec<String>>,
}

impl<'c> Case<'c> {
    /// A case about to run on `fs`.
    pub fn new(fs: Fs<'c>, notes: &'c Notes) -> Self {
        Self { fs, notes }
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        let mut step = self.notes.step.lock().expect("no holder of this lock panics");
        *step = (step.0 + 1, what.to_owned());
    }

    /// Records what the file system under the client decides.
    pub fn observe(&self, key: &str, value: impl Display) {
        let value: String = value.to_string().split_whitespace().collect::<Vec<_>>().join("_");
        self.notes.observations.lock().expect("no holder of this lock panics").push(format!("{key}={value}"));
    }

    /// Records whether an operation works here, or its error.
    pub fn observe_result<T>(&self, key: &str, result: &Result<T>) {
        match result {
            Ok(_) => self.observe(key, "ok"),
            Err(errno) => self.observe(key, name_of(*errno)),
        }
    }
}

impl<'c> Deref for Case<'c> {
    type Target = Fs<'c>;

    fn deref(&self) -> &Fs<'c> {
        &self.fs
    }
}

impl Notes {
    /// `step 2 (…)`, or nothing before the first.
    pub fn step(&self) -> String {
        let step = self.step.lock().expect("no holder of this lock panics");
        if step.0 == 0 { "before the first step".to_owned() } else { format!("step {} ({})", step.0, step.1) }
    }

    /// `key=value key=value`.
    pub fn observations(&self) -> String {
        self.observations.lock().expect("no holder of this lock panics").join(" ")
    }
}

/// Fails unless both are the same.
#[track_caller]
pub fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(Stop::fail(format!("{what}: expected {expected:?}, found {found:?}"))) }
}

/// Fails unless the fact holds; `found` says what was found instead.
#[track_caller]
pub fn holds(what: &str, fact: bool, found: impl Debug) -> Outcome {
    if fact { Ok(()) } else { Err(Stop::fail(format!("expected: {what}; found {found:?}"))) }
}

/// Fails unless the operation was refused with this error.
#[track_caller]
pub fn refused<T>(result: Result<T>, expected: Errno) -> Outcome {
    refused_any(result, &[expected])
}

/// Fails unless the operation was refused with one of these errors.
#[track_caller]
pub fn refused_any<T>(result: Result<T>, expected: &[Errno]) -> Outcome {
    let names = expected.iter().map(|errno| name_of(*errno)).collect::<Vec<_>>().join(" or ");
    match result {
        Err(errno) if expected.contains(&errno) => Ok(()),
        Err(errno) => Err(Stop::fail(format!("expected {names}, found {}", name_of(errno)))),
        Ok(_) => Err(Stop::fail(format!("expected {names}, found success"))),
    }
}

/// Fails unless data are the same; says where they differ rather than print them.
#[track_caller]
pub fn same_data(what: &str, found: &[u8], expected: &[u8]) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let show = |data: &[u8]| String::from_utf8_lossy(&data[at..data.len().min(at + 16)]).into_owned();
    Err(Stop::fail(format!(
        "{what}: expected {} bytes, found {}; they differ at {at}: expected {:?}, found {:?}",
        expected.len(),
        found.len(),
        show(expected),
        show(found)
    )))
}
