//! A run from start to end: the private folder, the machine, the session, and the account of the time.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use transom_metrics::Report;

use crate::{GuestSpec, Result, Vmm, machine::Machine, metrics, run_dir::RunDir, session::Session};

/// How the command ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status; 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
    /// What it wrote, where that was to be collected.
    pub stdout: Vec<u8>,
    /// What it wrote, where that was to be collected.
    pub stderr: Vec<u8>,
    /// What went wrong without changing the outcome, for a person to read.
    pub warnings: Vec<String>,
    /// What went through the windows of the shares that have one.
    pub dax: Vec<DaxUsage>,
    /// Where the time went.
    pub timings: Timings,
}

/// What the daemon of a share with a DAX window counted.
#[derive(Debug)]
pub struct DaxUsage {
    /// Where the guest had it mounted.
    pub guest: PathBuf,
    /// All its figures, read when the share was unmounted.
    pub report: Report,
}

/// Where the time of a run went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Starting the daemons, finding the modules, writing the initramfs.
    pub prepare: Duration,
    /// The size of the initramfs, bytes.
    pub initramfs_bytes: u64,
    /// From the VMM's start to the guest's first process.
    pub boot: Duration,
    /// Loading modules and opening the channels.
    pub devices: Duration,
    /// Mounting the root and the shares.
    pub mounts: Duration,
    /// Starting the command.
    pub command: Duration,
    /// From the command's start to the report of its end, the shares unmounted.
    pub run: Duration,
    /// Stopping the VMM and the daemons.
    pub stop: Duration,
}

impl Timings {
    /// From the call to the command's start.
    pub fn to_command(&self) -> Duration {
        self.prepare + self.boot + self.devices + self.mounts + self.command
    }
}

/// Boots `spec` under `vmm`, runs its command and returns how that ended. Blocks until then.
///
/// Nothing is left when it returns, whichever way: no process, no file.
/// Errors: see [`crate::Error`]; the command's own failure is none.
pub fn run(spec: &GuestSpec, vmm: &dyn Vmm) -> Result<Outcome> {
    let begun = Instant::now();
    let mut session = Session::new(spec)?;
    let dir = RunDir::new()?;
    let mut machine = Machine::start(spec, vmm, dir.path())?;
    let vmm_started = Instant::now();

    let result = session.follow(&mut machine, vmm_started);
    let stopping = Instant::now();
    let dax = if result.is_ok() { dax_usages(spec, &machine) } else { Vec::new() };
    let initramfs_bytes = machine.initramfs_bytes;
    drop(machine);
    dir.close()?;

    let mut outcome = result?;
    for (guest, read) in dax {
        match read {
            Ok(report) => outcome.dax.push(DaxUsage { guest, report }),
            Err(error) => outcome.warnings.push(format!("the figures of {guest:?}: {error}")),
        }
    }
    outcome.timings.prepare = vmm_started - begun;
    outcome.timings.initramfs_bytes = initramfs_bytes;
    outcome.timings.stop = stopping.elapsed();
    Ok(outcome)
}

/// What the daemons of shares with a window have counted.
fn dax_usages(spec: &GuestSpec, machine: &Machine) -> Vec<(PathBuf, metrics::Result<Report>)> {
    let socket = |guest| machine.daemon_of(guest).and_then(|daemon| daemon.metrics.as_deref());
    let shares = spec.shares.iter().enumerate();
    shares.filter_map(|(number, share)| Some((share.guest.clone(), metrics::read(socket(number)?)))).collect()
}
