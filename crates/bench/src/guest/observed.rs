//! A [`Vmm`] between the run and the real one: it places the machine, listens to what the workloads say, and reads the
//! daemon's processor time at each line.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::fd::OwnedFd,
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use indicatif::ProgressBar;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use transom_vm::{Boot, Error, GuestChannels, Result, Started, Vmm};

use crate::{
    process::{Placement, children, cpu_ns, on_core},
    workload::line::Line,
};

/// The lines but those of a begin, each with the daemon's processor time since the begin, in nanoseconds.
pub(super) type Observations = Vec<(Line, Option<u64>)>;

/// A VMM that is observed.
pub(super) struct Observed<'a> {
    inner: &'a dyn Vmm,
    placement: Placement,
    settle: Duration,
    bar: ProgressBar,
    observations: Arc<Mutex<Observations>>,
}

impl<'a> Observed<'a> {
    /// `bar` advances with each workload.
    pub(super) fn new(inner: &'a dyn Vmm, placement: Placement, settle_ms: u64, bar: &ProgressBar) -> Self {
        Self {
            inner,
            placement,
            settle: Duration::from_millis(settle_ms),
            bar: bar.clone(),
            observations: Arc::default(),
        }
    }

    /// What was observed, once the run is over.
    pub(super) fn into_observations(self) -> Observations {
        std::mem::take(&mut self.observations.lock().unwrap_or_else(PoisonError::into_inner))
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
        // All that this process has started by now are the daemons.
        let daemons = children(process::id());
        let started = on_core(self.placement.guest_core(), || self.inner.start(boot));
        let mut started = started.map_err(Error::io("placing the machine"))??;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(Error::io("making a channel"))?;
        let guest = std::mem::replace(&mut started.channels.stdout, theirs);
        let watch =
            Watch { daemons, settle: self.settle, bar: self.bar.clone(), observations: Arc::clone(&self.observations) };
        thread::spawn(move || watch.relay(guest, ours));
        Ok(started)
    }
}

/// Reads on one side, writes on the other, and looks at the lines between.
struct Watch {
    daemons: Vec<u32>,
    settle: Duration,
    bar: ProgressBar,
    observations: Arc<Mutex<Observations>>,
}

impl Watch {
    fn relay(self, from: OwnedFd, to: OwnedFd) {
        let mut to = File::from(to);
        let mut from = BufReader::new(File::from(from));
        let mut begun_ns = None;
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            match serde_json::from_slice(&line) {
                Ok(Line::Begin { .. }) => {
                    // What the daemon still has to do for earlier workloads is done by the middle of the idle time.
                    thread::sleep(self.settle / 2);
                    begun_ns = Some(self.cpu_ns());
                }
                Ok(said) => {
                    let used_ns = begun_ns.take().map(|begun_ns| self.cpu_ns().saturating_sub(begun_ns));
                    self.observations.lock().unwrap_or_else(PoisonError::into_inner).push((said, used_ns));
                    self.bar.inc(1);
                }
                // A message of somebody else's goes the same way.
                Err(_) => {}
            }
            if to.write_all(&line).is_err() {
                return;
            }
            line.clear();
        }
    }

    fn cpu_ns(&self) -> u64 {
        self.daemons.iter().map(|&pid| cpu_ns(pid)).sum()
    }
}
