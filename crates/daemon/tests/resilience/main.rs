//! The process that serves is killed while a driver uses the share, which notices nothing but a pause.

mod killed;
#[path = "../launch/mod.rs"]
mod launch;
mod steps;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use launch::{Bench, Daemon};
use rustix::process::{Pid, Signal, kill_process};
use transom_frontend::{FrontEnd, Options, fuse::Session, queue::Queue};

/// The high-priority queue.
const HIPRIO: u32 = 0;
/// The first request queue.
const REQUEST: u32 = 1;

/// How long a daemon may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(60);

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

/// Waits for the thread that takes orders, which is started once the supervisor has been told that the daemon is ready.
fn wait_until_ready(daemon: &Daemon) {
    let begun = Instant::now();
    let is_there = || {
        let threads = fs::read_dir(format!("/proc/{}/task", serving(daemon))).into_iter().flatten();
        let mut names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.any(|name| name.trim() == "upgrade")
    };
    while !is_there() {
        assert!(begun.elapsed() < READY_MAX, "the daemon is not ready");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the process that serves, which the driver has used.
fn kill(daemon: &Daemon) -> u32 {
    let pid = serving(daemon);
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    pid
}
