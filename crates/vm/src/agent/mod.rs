//! Process 1 of the guest: it prepares the machine, runs one command, and says how that ended.
//!
//! The order is in [`work`]: devices, root and shares, command, unmounting, report. Each step is a file beside this
//! one. After the report the host stops the machine; should it not, the machine resets, which ends it as well.

mod channels;
mod command;
mod devices;
mod loopback;
mod mounts;
mod pump;
mod session_leader;

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    process::getpid,
    system::{RebootCommand, reboot},
};

use crate::protocol::{FromGuest, Milestone, TASK_PATH, Task};
use channels::Reports;

/// The host stops a machine at once that has reported. Should it not within this time, the machine resets.
const STOPPED_AFTER_MAX: Duration = Duration::from_secs(10);

/// Becomes the agent, never to return, if this process is the first one of a guest.
pub fn run_if_init() {
    if getpid().is_init() && Path::new(TASK_PATH).exists() {
        run();
    }
}

fn run() -> ! {
    let mut reports = None;
    let worked = work(&mut reports);
    if let Err(error) = worked {
        // The kernel's log reaches the host even where no channel does.
        let _ = fs::write("/dev/kmsg", format!("<3>transom: {error}"));
        if let Some(reports) = &reports {
            let _ = Reports::send(reports, &FromGuest::Failed { message: error.to_string() });
        }
    }
    if reports.is_some() {
        // The host, which has heard, looks at the daemons' figures before it stops the machine.
        std::thread::sleep(STOPPED_AFTER_MAX);
    }
    let _ = reboot(RebootCommand::Restart);
    loop {
        std::thread::park();
    }
}

/// All that the agent does; what it returns has not been reported yet.
fn work(reports: &mut Option<Reports>) -> io::Result<()> {
    let begun = Instant::now();
    mounts::kernel_file_systems(Path::new("/"))?;
    let task: Task = serde_json::from_slice(&fs::read(TASK_PATH)?)?;
    fs::remove_file(TASK_PATH)?;
    devices::load(&task.modules)?;
    let channels = channels::open(&task.channels)?;

    let reports = reports.insert(channels.reports);
    let reached = |milestone| {
        let agent_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        reports.send(&FromGuest::Reached { milestone, agent_us })
    };
    reached(Milestone::Devices)?;
    let mounted = mounts::root_and_shares(&task)?;
    reached(Milestone::Mounts)?;
    // A guest without a loopback device is still a guest.
    let mut warnings: Vec<_> =
        loopback::bring_up().err().map(|error| format!("no loopback: {error}")).into_iter().collect();

    let ended = command::run(&task, channels.streams, channels.requests, || reached(Milestone::Command))?;
    warnings.extend(ended.warnings);
    warnings.extend(mounted.leave());
    reports.send(&FromGuest::Ended {
        exit_code: ended.exit_code,
        stdout_bytes: ended.stdout_bytes,
        stderr_bytes: ended.stderr_bytes,
        warnings,
    })
}

/// An error of the system with what was being done.
fn while_doing<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> io::Error {
    let doing = doing.into();
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{doing}: {error}"))
    }
}
