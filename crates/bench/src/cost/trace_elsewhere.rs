//! Tracing on processors that it is not written for.

use anyhow::bail;

use super::counts::Counts;

/// Nothing can be traced.
pub(super) enum Tracer {}

/// How far the daemon came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Ran,
    Waits,
}

impl Tracer {
    /// Fails.
    pub(super) fn attach(_pid: u32) -> anyhow::Result<Self> {
        bail!("instructions are counted on x86_64 only; this is {}", std::env::consts::ARCH)
    }

    pub(super) fn counts(&self) -> &Counts {
        match *self {}
    }

    pub(super) fn record_atomics(&mut self) {
        match *self {}
    }

    pub(super) fn take_atomics(&mut self) -> Vec<(i32, std::collections::BTreeSet<u64>)> {
        match *self {}
    }

    pub(super) fn elapsed_ns(&self) -> i64 {
        match *self {}
    }

    pub(super) fn idle(&mut self, _ns: i64) {
        match *self {}
    }

    pub(super) fn run(&mut self) -> anyhow::Result<Progress> {
        match *self {}
    }
}
