//! Receives the workloads' reports and measures the daemon's processor time during each workload.

use std::{thread, time::Duration};

use anyhow::bail;
use indicatif::ProgressBar;

use crate::{process::cpu_ns, workload::line::Line};

/// All lines except `Begin`, each with the daemon's processor time since the begin, in nanoseconds.
pub type Observations = Vec<(Line, Option<u64>)>;

/// Observes the lines of one run.
pub struct Observer {
    /// The daemon's processes.
    daemons: Vec<u32>,
    settle: Duration,
    bar: ProgressBar,
    begun_ns: Option<u64>,
    observations: Observations,
}

impl Observer {
    /// Creates an observer of the processes `daemons`. `bar` advances with each workload.
    pub fn new(daemons: Vec<u32>, settle_ms: u64, bar: &ProgressBar) -> Self {
        let settle = Duration::from_millis(settle_ms);
        Self { daemons, settle, bar: bar.clone(), begun_ns: None, observations: Vec::new() }
    }

    /// Processes a line. After a `Begin`, its sender is idle for the settling time.
    pub fn hear(&mut self, line: Line) {
        match line {
            Line::Begin { .. } => {
                // The daemon finishes its work for earlier workloads in the first half of the idle time.
                thread::sleep(self.settle / 2);
                self.begun_ns = self.cpu_ns();
            }
            said => {
                let used_ns = self.begun_ns.take().zip(self.cpu_ns());
                let used_ns = used_ns.map(|(begun_ns, now_ns)| now_ns.saturating_sub(begun_ns));
                if !matches!(said, Line::End) {
                    self.bar.inc(1);
                }
                self.observations.push((said, used_ns));
            }
        }
    }

    /// Returns the observations, if the run is complete.
    pub fn complete(self) -> anyhow::Result<Observations> {
        let mut observations = self.observations;
        match observations.pop() {
            Some((Line::End, _)) => Ok(observations),
            last => bail!("the workloads stopped after {last:?}"),
        }
    }

    fn cpu_ns(&self) -> Option<u64> {
        (!self.daemons.is_empty()).then(|| self.daemons.iter().map(|&pid| cpu_ns(pid)).sum())
    }
}
