//! Process 1 of the guest: prepares the machine, runs one command, or several if it is kept, and reports the outcome.
//!
//! [`work`] has the order of the steps: devices, root and shares, command, unmounting, report. Each step has a module.
//! After the report the host stops the machine; if it does not, the machine resets, which also ends it.

mod channels;
mod command;
mod devices;
mod events;
mod mounts;
mod netlink;
mod network;
mod pump;
mod resume;
mod serve;
mod session_leader;
mod shares;

use std::{
    fs, io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    process::getpid,
    system::{RebootCommand, reboot, sethostname},
};

use crate::{
    archive,
    protocol::{FromGuest, Milestone, Replay, SETUP_PATH, Setup},
};
use channels::Reports;
use events::Replayer;

/// The guest's name.
const HOST_NAME: &[u8] = b"transom";

/// How long to wait for the host to stop the machine after the report, before the machine resets.
const STOPPED_AFTER_MAX: Duration = Duration::from_secs(10);

/// Becomes the agent and never returns, if this is the first process of a guest, or a program that the agent starts.
pub fn run_if_init() {
    archive::run_if_archiver();
    if getpid().is_init() && Path::new(SETUP_PATH).exists() {
        run();
    }
}

fn run() -> ! {
    let mut reports = None;
    let worked = work(&mut reports);
    if let Err(error) = worked {
        // The kernel's log reaches the host even without a channel.
        let _ = fs::write("/dev/kmsg", format!("<3>transom: {error}"));
        if let Some(reports) = &reports {
            let lacks_device = error.kind() == mounts::NO_DEVICE;
            let _ = Reports::send(reports, &FromGuest::Failed { message: error.to_string(), lacks_device });
        }
    }
    if reports.is_some() {
        // The host reads the daemons' metrics before it stops the machine.
        std::thread::sleep(STOPPED_AFTER_MAX);
    }
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}

/// Runs all steps. A returned error has not been reported yet.
fn work(reports: &mut Option<Reports>) -> io::Result<()> {
    let mut begun = Instant::now();
    mounts::kernel_file_systems(Path::new("/"))?;
    let setup: Setup = serde_json::from_slice(&fs::read(SETUP_PATH)?)?;
    fs::remove_file(SETUP_PATH)?;
    devices::load(&setup.modules)?;
    let mut channels = channels::open(&setup.channels)?;

    let reports = reports.insert(channels.reports);
    let task = match setup.task {
        Some(task) => task,
        None => {
            reports.send(&FromGuest::Waiting)?;
            let beginning = channels.requests.beginning()?;
            begun = Instant::now();
            resume::adopt(&beginning)?;
            beginning.task
        }
    };
    let reached = |milestone| {
        let agent_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        reports.send(&FromGuest::Reached { milestone, agent_us })
    };
    reached(Milestone::Devices)?;
    if task.has_late_shares {
        channels.requests.go()?;
    }
    let events = (task.events != Replay::Never).then(events::program).transpose()?;
    mounts::root(&task)?;
    network::name_resolver(&task.network)?;
    let mounted = Arc::new(shares::mount_all(&task)?);
    reached(Milestone::Mounts)?;
    // Shells show it; a guest without a name is usable.
    let _ = sethostname(HOST_NAME);
    // A guest is usable without a loopback device.
    let mut warnings: Vec<_> = netlink::bring_up(netlink::LOOPBACK)
        .err()
        .map(|error| format!("cannot bring up the loopback device: {error}"))
        .into_iter()
        .collect();
    network::start(&task.network, &setup.channels.network)?;

    let mut notes = Vec::new();
    let replayer = match events.map(|program| events::start(&program, &task)).transpose() {
        Ok(replayer) => replayer.flatten(),
        Err(error) => {
            warnings.push(format!("no events: {error}"));
            None
        }
    };
    let stages = command::Stages {
        started: || reached(Milestone::Command),
        ending: || notes.extend(replayer.and_then(Replayer::end).map(|why| format!("no events: {why}"))),
    };
    let ended = match task.is_kept {
        true => serve::run(&task, channels.streams, channels.requests, stages, |number, change| {
            shares::change(&mounted, number, change, reports.clone());
        })?,
        false => command::run(&task, channels.streams, channels.requests, stages)?,
    };
    warnings.extend(ended.warnings);
    warnings.extend(mounted.leave());
    reports.send(&FromGuest::Ended {
        exit_code: ended.exit_code,
        stdout_bytes: ended.stdout_bytes,
        stderr_bytes: ended.stderr_bytes,
        warnings,
        notes,
    })
}

/// Returns a function for `map_err` that adds what failed to a system error.
fn while_doing<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> io::Error {
    let doing = doing.into();
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{doing}: {error}"))
    }
}
