//! Runs cases, several at a time, each on its own thread with a time limit.
//!
//! A [`Subject`] provides a fresh directory and a client for a case. A case that does not end is reported with its
//! current step, and its thread is abandoned.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;

use crate::case::{Case, Definition, Notes, Outcome, Stop};
use crate::client::Client;
use crate::fs::Fs;
use crate::report::{Report, Status};
use crate::syscalls::{Syscalls, own_descriptors};

/// Where cases run.
pub trait Subject: Send + Sync {
    /// Makes a fresh directory of this name, runs `body` with a client whose current directory it is, and removes it.
    ///
    /// Called on a thread that nothing else uses.
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()>;
}

/// A directory of this machine's kernel.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Cases run in directories under `path`, which exists.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().with_context(|| format!("directory {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Subject for Directory {
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()> {
        let path = self.path.join(name.replace('/', "."));
        std::fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
        own_descriptors().context("a descriptor table for the case")?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o755)).context("chmod")?;
        std::env::set_current_dir(&path).with_context(|| format!("chdir {}", path.display()))?;
        body(&Syscalls);
        std::env::set_current_dir(&self.path).context("chdir away from the case")?;
        std::fs::remove_dir_all(&path).with_context(|| format!("removing {} after the case", path.display()))
    }
}

/// Runs `cases` on `subject`, `jobs` at a time; `tell` gets each report, in the order of the list.
pub fn run(
    subject: &Arc<dyn Subject>,
    cases: &[Definition],
    jobs: usize,
    limit: Duration,
    tell: &mut (dyn FnMut(&Report) + Send),
) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let board = Mutex::new(Board { reports: vec![None; cases.len()], told: 0, tell });
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run_one(subject, *case, limit);
                    let place = cases.iter().position(|other| other.name == case.name).expect("it came from the list");
                    board.lock().expect("no holder panics").put(place, report);
                }
            });
        }
    });
    board.into_inner().expect("no holder panics").reports.into_iter().flatten().collect()
}

/// Reports as they come in, told in the order of the list.
struct Board<'t> {
    reports: Vec<Option<Report>>,
    told: usize,
    tell: &'t mut (dyn FnMut(&Report) + Send),
}

impl Board<'_> {
    fn put(&mut self, place: usize, report: Report) {
        self.reports[place] = Some(report);
        while let Some(Some(report)) = self.reports.get(self.told) {
            (self.tell)(report);
            self.told += 1;
        }
    }
}

fn run_one(subject: &Arc<dyn Subject>, case: Definition, limit: Duration) -> Report {
    let notes = Arc::new(Notes::default());
    let (done, ending) = mpsc::channel();
    let thread = {
        let (subject, notes) = (Arc::clone(subject), Arc::clone(&notes));
        std::thread::Builder::new().name(case.name.to_owned()).spawn(move || {
            let mut outcome: Outcome = Err(Stop::fail("the case did not run"));
            let ran =
                subject.run_in(case.name, &mut |client| outcome = (case.run)(&Case::new(Fs::new(client), &notes)));
            let outcome = match (outcome, ran) {
                (Ok(()), Err(error)) => Err(Stop::fail(format!("{error:#}"))),
                (Err(Stop::Fail(why)), Err(error)) => Err(Stop::Fail(format!("{why}; and {error:#}"))),
                (outcome, _) => outcome,
            };
            // The runner has gone on when the time was up.
            let _ = done.send(outcome);
        })
    };
    let outcome = match thread {
        Err(error) => Err(Stop::fail(format!("a thread for the case: {error}"))),
        Ok(_thread) => match ending.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(Stop::fail(format!("still running after {} s", limit.as_secs()))),
            Err(RecvTimeoutError::Disconnected) => Err(Stop::fail("it panicked")),
        },
    };
    let (status, reason) = match outcome {
        Ok(()) => (Status::Pass, String::new()),
        Err(Stop::Fail(why)) => (Status::Fail, format!("{}: {why}", notes.step())),
        Err(Stop::Skip(why)) => (Status::Skipped, why),
    };
    Report { name: case.name.to_owned(), status, reason: one_line(&reason), observations: notes.observations() }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
