//! A [`Vmm`] that wraps another: it places the machine on a core and observes the workloads' reports.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::fd::OwnedFd,
    process,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use anyhow::Context;
use indicatif::ProgressBar;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use transom_vm::{Boot, Error, GuestChannels, Result, Started, Vmm};

use crate::{
    guests::observed::{Observations, Observer},
    process::{Placement, children, on_core},
    workload::line::Line,
};

/// A VMM whose guest is observed.
pub(super) struct Observed<'a> {
    inner: &'a dyn Vmm,
    placement: Placement,
    settle_ms: u64,
    bar: ProgressBar,
    /// The observing thread, from the start of the machine on.
    watch: Mutex<Option<JoinHandle<Observer>>>,
}

impl<'a> Observed<'a> {
    /// Wraps `inner`; `bar` advances with each workload.
    pub(super) fn new(inner: &'a dyn Vmm, placement: Placement, settle_ms: u64, bar: &ProgressBar) -> Self {
        Self { inner, placement, settle_ms, bar: bar.clone(), watch: Mutex::default() }
    }

    /// Returns the observations; must be called after the run.
    pub(super) fn complete(self) -> anyhow::Result<Observations> {
        let watch = self.watch.into_inner().unwrap_or_else(PoisonError::into_inner);
        let observer = watch.context("no machine was started")?.join();
        observer.map_err(|_| anyhow::anyhow!("the listener panicked"))?.complete()
    }
}

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Vmm for Observed<'_> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn modules(&self) -> &'static [&'static str] {
        self.inner.modules()
    }

    fn guest_channels(&self) -> GuestChannels {
        self.inner.guest_channels()
    }

    fn daemon_args(&self, tag: &str) -> Vec<OsString> {
        self.inner.daemon_args(tag)
    }

    fn start(&self, boot: &Boot<'_>) -> Result<Started> {
        // The only child processes so far are the daemons.
        let observer = Observer::new(children(process::id()), self.settle_ms, &self.bar);
        let started = on_core(self.placement.guest_core(), || self.inner.start(boot));
        let mut started = started.map_err(Error::io("placing the machine"))??;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(Error::io("making a channel"))?;
        let guest = std::mem::replace(&mut started.channels.stdout, theirs);
        let watch = thread::spawn(move || relay(guest, ours, observer));
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        Ok(started)
    }
}

/// Copies lines from one side to the other, and passes them to the observer.
fn relay(from: OwnedFd, to: OwnedFd, mut observer: Observer) -> Observer {
    let mut to = File::from(to);
    let mut from = BufReader::new(File::from(from));
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        // Other messages are forwarded without being observed.
        if let Ok(said) = serde_json::from_slice::<Line>(&line) {
            observer.hear(said);
        }
        if to.write_all(&line).is_err() {
            break;
        }
        line.clear();
    }
    observer
}
