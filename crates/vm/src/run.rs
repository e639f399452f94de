//! [`run`]: a run from start to end, with its private directory, machine, session and timings.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use transom_metrics::Report;

use crate::{
    Error, GuestSpec, Result, Vmm,
    keep::Keeper,
    machine::{How, Machine, Start},
    metrics,
    run_dir::RunDir,
    session::Session,
};

/// The outcome of the command.
#[derive(Debug)]
pub struct RunOutcome {
    /// The exit status, or 128 plus the signal's number if a signal ended the command.
    pub exit_code: i32,
    /// Standard output, if it was captured.
    pub stdout: Vec<u8>,
    /// Standard error, if it was captured.
    pub stderr: Vec<u8>,
    /// Problems that did not change the outcome.
    pub warnings: Vec<String>,
    /// Remarks for a caller that prints details.
    pub notes: Vec<String>,
    /// The use of DAX windows, for the shares that have one.
    pub dax: Vec<DaxUsage>,
    /// Where the time went.
    pub timings: Timings,
}

/// The use of a share's DAX window.
#[derive(Debug)]
pub struct DaxUsage {
    /// The mount point in the guest.
    pub guest: PathBuf,
    /// The daemon's metrics, read when the share was unmounted.
    pub report: Report,
}

/// The durations of the phases of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Starting the daemons, finding the modules and writing the initramfs.
    pub prepare: Duration,
    /// The size of the initramfs in bytes; 0 for a machine that was resumed.
    pub initramfs_bytes: u64,
    /// Whether the machine was resumed from a snapshot. Then most of its start is in `prepare`.
    pub is_resumed: bool,
    /// From the start of the VMM to the guest's first process.
    pub boot: Duration,
    /// Loading modules and opening the channels.
    pub devices: Duration,
    /// Mounting the root and the shares.
    pub mounts: Duration,
    /// Starting the command.
    pub command: Duration,
    /// From the start of the command to the report of its end, including unmounting.
    pub run: Duration,
    /// Stopping the VMM and the daemons.
    pub stop: Duration,
}

impl Timings {
    /// Returns the time from the call to the start of the command.
    pub fn to_command(&self) -> Duration {
        self.prepare + self.boot + self.devices + self.mounts + self.command
    }
}

/// Boots `spec` under `vmm`, runs its command and returns the outcome. Blocks until the command has ended.
///
/// No process and no file is left when this returns.
///
/// # Errors
///
/// See [`crate::Error`]. A failure of the command itself is not an error.
pub fn run(spec: &GuestSpec, vmm: &dyn Vmm) -> Result<RunOutcome> {
    follow(spec, vmm, None)
}

/// As [`run`]. With a keeper, the machine runs the commands of others until it is stopped.
pub(crate) fn follow(spec: &GuestSpec, vmm: &dyn Vmm, keeper: Option<&Keeper>) -> Result<RunOutcome> {
    let begun = Instant::now();
    let session = &mut Session::new(spec, keeper, begun)?;
    match run_once(spec, vmm, session, Start::Resumed) {
        Err(Error::NotResumed { why }) => {
            // Both see a signal that arrives now.
            let second = &mut Session::new(spec, keeper, begun)?;
            session.check()?;
            let mut outcome = run_once(spec, vmm, second, Start::Booted)?;
            outcome.warnings.insert(0, format!("the machine was started again, without a snapshot: {why}"));
            Ok(outcome)
        }
        result => result,
    }
}

fn run_once(spec: &GuestSpec, vmm: &dyn Vmm, session: &mut Session<'_>, start: Start) -> Result<RunOutcome> {
    let begun = Instant::now();
    let dir = RunDir::new()?;
    let how = How { start, patience: session.patience(), is_kept: session.is_kept() };
    let mut machine = Machine::start(spec, vmm, dir.path(), how)?;
    let vmm_started = Instant::now();

    let result = session.follow(&mut machine, vmm_started);
    let result = result.map_err(|error| session.not_resumed(error, &mut machine));
    let is_resumed = machine.is_resumed();
    let stopping = Instant::now();
    let dax = if result.is_ok() { dax_usages(spec, &machine) } else { Vec::new() };
    let initramfs_bytes = machine.initramfs_bytes;
    let is_killed = result.as_ref().is_ok_and(|outcome| outcome.exit_code == 128 + Signal::KILL.as_raw());
    let fault = is_killed.then(|| machine.fault()).flatten();
    drop(machine);
    dir.close()?;

    let mut outcome = result?;
    outcome.warnings.extend(fault.map(|fault| format!("the guest's kernel has ended a program:\n{fault}")));
    for (guest, read) in dax {
        match read {
            Ok(report) => outcome.dax.push(DaxUsage { guest, report }),
            Err(error) => outcome.warnings.push(format!("cannot read the metrics of {guest:?}: {error}")),
        }
    }
    outcome.timings.prepare = vmm_started - begun;
    outcome.timings.initramfs_bytes = initramfs_bytes;
    outcome.timings.stop = stopping.elapsed();
    outcome.timings.is_resumed = is_resumed;
    Ok(outcome)
}

/// Reads the metrics of the daemons of shares with a window.
fn dax_usages(spec: &GuestSpec, machine: &Machine) -> Vec<(PathBuf, metrics::Result<Report>)> {
    let socket = |guest| machine.daemon_of(guest).and_then(|daemon| daemon.metrics.as_deref());
    let shares = spec.shares.iter().enumerate();
    shares.filter_map(|(number, share)| Some((share.guest.clone(), metrics::read(socket(number)?)))).collect()
}
