//! A daemon that is watched: the last two readings of its figures.

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
    /// Why the newest attempt gave nothing.
    problem: Option<String>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None, previous: None, problem: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The newest figures, and those an interval before them if the daemon ran then.
    pub(super) fn readings(&self) -> Option<(&Report, Option<&Report>)> {
        self.last.as_ref().map(|last| (last, self.previous.as_ref()))
    }

    /// Why there are no new figures, if there are none.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads the figures; blocks for some seconds at most.
    pub(super) fn read(&mut self) -> Result<&Report> {
        match metrics::read(&self.path) {
            Ok(report) => {
                self.problem = None;
                // A daemon that was started anew counts from 0.
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
