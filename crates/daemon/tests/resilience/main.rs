//! The process that serves is killed while a driver uses the share, which notices nothing but a pause.

mod killed;
#[path = "../launch/mod.rs"]
mod launch;
mod steps;

use std::fs;

use launch::{Bench, Daemon};
use rustix::process::{Pid, Signal, kill_process};
use transom_frontend::{FrontEnd, Options, fuse::Session, queue::Queue};

/// The high-priority queue.
const HIPRIO: u32 = 0;
/// The first request queue.
const REQUEST: u32 = 1;

/// A driver with a session.
struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
    /// Its ring is in the guest's memory as long as this lives.
    _hiprio: Queue,
}

impl Guest {
    fn begin(daemon: &mut Daemon) -> Self {
        let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
        let hiprio = front_end.start_queue(HIPRIO).unwrap();
        let session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
        Self { front_end, session, _hiprio: hiprio }
    }
}

/// Starts a daemon that survives its death, with `options`.
fn start(bench: &Bench, options: &str) -> Daemon {
    bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} --resilient {options}"))
}

/// The process that serves: the last one in the line of children.
fn serving(daemon: &Daemon) -> u32 {
    let mut pid = daemon.pid();
    while let Ok(children) = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        && let Some(child) = children.split_whitespace().next()
    {
        pid = child.parse().unwrap();
    }
    pid
}

/// Kills the process that serves, which the driver has used.
fn kill(daemon: &Daemon) -> u32 {
    let pid = serving(daemon);
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    pid
}
