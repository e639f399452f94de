//! Each system call of the daemon fails, or is held while something else happens, and what is left is compared with a
//! model.
//!
//! The real `transomd` runs under a seccomp filter that asks this test before each call ([`listener`]). While one
//! request of each kind ([`requests`]) is served, the nth of its calls is disturbed ([`disturber`], [`calls`]), for
//! every n that there is. A [`rounds`] then checks the reply, the share, what the daemon holds by its own word and by
//! the host's.
//!
//! `TRANSOM_FAULTS=all` lets each call fail in all of its ways, not in one, and takes both ways of holding inodes;
//! `TRANSOM_FAULTS=NAME` takes the kinds whose names contain NAME, in the same manner.

mod calls;
mod daemon;
mod disturber;
mod guest;
#[path = "../launch/mod.rs"]
mod launch;
mod listener;
mod requests;
mod rounds;
mod share;

use std::collections::BTreeSet;

use daemon::Daemon;
use launch::{is_root, skipped};
use requests::{Kind, kinds};
use rounds::{Event, Found, with_event, with_failure};

/// Ways in which a call may fail, at most.
const WAYS_MAX: usize = 4;
/// A request that makes more calls than this has no end.
const CALLS_MAX: usize = 100;

/// What `TRANSOM_FAULTS` asks for.
struct Scope {
    is_all: bool,
    name: Option<String>,
}

impl Scope {
    /// `None` where nothing can be disturbed here.
    fn find() -> Option<Self> {
        if !is_root() {
            skipped("needs root");
            return None;
        }
        if let Err(error) = listener::try_out() {
            skipped(&format!("system calls cannot be supervised here: {error}"));
            return None;
        }
        let wanted = std::env::var("TRANSOM_FAULTS").ok();
        let name = wanted.clone().filter(|wanted| wanted != "all");
        Some(Self { is_all: wanted.is_some(), name })
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        kinds().into_iter().filter(|kind| self.name.as_ref().is_none_or(|name| kind.name.contains(name)))
    }

    fn options(&self) -> &[&str] {
        if self.is_all { &["", "--inode-file-handles=never"] } else { &[""] }
    }
}

/// What was found in all rounds of a test.
#[derive(Default)]
struct Report {
    rounds: usize,
    wrong: Vec<String>,
    done_and_failed: BTreeSet<String>,
}

impl Report {
    fn add(&mut self, kind: &Kind, what: &str, found: Found) {
        self.rounds += 1;
        let disturbed = found.disturbed.unwrap_or_else(|| "nothing".into());
        let round = format!("{}: {what} {disturbed}", kind.name);
        if found.is_done_and_failed {
            self.done_and_failed.insert(round.clone());
        }
        self.wrong.extend(found.wrong.into_iter().map(|wrong| format!("{round}: {wrong}")));
    }

    /// Ends `daemon`, which has not panicked.
    fn end(&mut self, daemon: Daemon, what: &str) {
        let said = daemon.end();
        if said.contains("panicked") {
            self.wrong.push(format!("{what}: {said}"));
        }
    }

    fn finish(self) {
        eprintln!("{} rounds; answered with an error although done: {:#?}", self.rounds, self.done_and_failed);
        assert!(self.wrong.is_empty(), "{} of {} rounds: {:#?}", self.wrong.len(), self.rounds, self.wrong);
    }
}

#[test]
fn a_request_whose_calls_fail_one_by_one_fails_cleanly_or_succeeds() {
    let Some(scope) = Scope::find() else { return };
    let mut report = Report::default();
    for options in scope.options() {
        let mut daemon = Daemon::start(options);
        for kind in scope.kinds().filter(|kind| !kind.waits) {
            let found = with_failure(&mut daemon, &kind, None);
            report.add(&kind, "undisturbed,", found);
            for nth in 0..CALLS_MAX {
                // One way of each call in turn, or all of them.
                let ways = if scope.is_all { 0..WAYS_MAX } else { nth % 2..nth % 2 + 1 };
                let mut is_last = false;
                for way in ways {
                    let found = with_failure(&mut daemon, &kind, Some((nth, way)));
                    let (has_effect, has_call) = (found.has_effect, found.disturbed.is_some());
                    report.add(&kind, "failed", found);
                    is_last |= !has_call;
                    if !has_effect {
                        break;
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        report.end(daemon, "failures");
    }
    report.finish();
}

fn hold_each_call(events: &[Event]) {
    let Some(scope) = Scope::find() else { return };
    let mut report = Report::default();
    for options in scope.options() {
        for &event in events {
            let mut daemon = Daemon::start(options);
            // A request that waits does so until its session ends.
            let ends_session = matches!(event, Event::Destroy | Event::Leave);
            for kind in scope.kinds().filter(|kind| !kind.waits || ends_session) {
                for nth in 0..CALLS_MAX {
                    let found = with_event(&mut daemon, &kind, nth, event);
                    let is_held = found.has_effect;
                    report.add(&kind, &format!("{event:?} during"), found);
                    if !is_held {
                        break;
                    }
                }
            }
            report.end(daemon, &format!("{event:?}"));
        }
    }
    report.finish();
}

#[test]
fn a_session_that_ends_during_each_call_leaves_nothing() {
    hold_each_call(&[Event::Destroy]);
}

#[test]
fn a_front_end_that_leaves_during_each_call_leaves_nothing() {
    hold_each_call(&[Event::Leave]);
}

#[test]
fn a_host_that_changes_the_file_during_each_call_sees_the_request_done_or_undone() {
    hold_each_call(&[Event::Renamed, Event::Removed, Event::Replaced]);
}
