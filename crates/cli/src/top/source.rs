//! A daemon's metrics: the last two readings.

use std::path::{Path, PathBuf};

use anyhow::Result;
use transom_metrics::Report;
use transom_vm::metrics;

/// A daemon's metrics socket and what was read there.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    last: Option<Report>,
    /// The reading before `last`, of the same run of the daemon.
    previous: Option<Report>,
    /// Why the last reading failed, if it did.
    problem: Option<String>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None, previous: None, problem: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last report, and the one before it if the daemon has not been restarted since.
    pub(super) fn readings(&self) -> Option<(&Report, Option<&Report>)> {
        self.last.as_ref().map(|last| (last, self.previous.as_ref()))
    }

    /// Returns why the last reading failed, if it did.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads the metrics; blocks for some seconds at most.
    pub(super) fn read(&mut self) -> Result<&Report> {
        match metrics::read(&self.path) {
            Ok(report) => {
                self.problem = None;
                // A restarted daemon counts from 0.
                let is_same_run = |last: &Report| last.uptime_seconds < report.uptime_seconds;
                self.previous = self.last.take().filter(is_same_run);
                Ok(self.last.insert(report))
            }
            Err(error) => {
                self.problem = Some(error.to_string());
                Err(error.into())
            }
        }
    }
}
