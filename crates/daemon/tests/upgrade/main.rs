//! A daemon is replaced by another while a driver uses it, which notices nothing.

mod commands;
mod executables;
mod fake;
mod front_ends;
mod hostile;
#[path = "../launch/mod.rs"]
mod launch;
mod locks;
mod session;

use std::{
    process::{Command, Output},
    thread::JoinHandle,
};

use launch::{Bench, Daemon};
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

/// Starts a daemon that can be upgraded, with `options`.
fn start(bench: &Bench, options: &str) -> Daemon {
    bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} --upgradable {options}"))
}

/// Asks for an upgrade, as an administrator does.
fn ask(bench: &Bench) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transomd")).arg("--upgrade").arg(bench.socket()).output().unwrap()
}

/// Upgrades, and returns what the command prints.
#[track_caller]
fn upgrade(bench: &Bench) -> String {
    let output = ask(bench);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asks for an upgrade that must be refused. Returns the reason.
#[track_caller]
fn refused(bench: &Bench) -> String {
    let output = ask(bench);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// Asks for an upgrade on another thread.
fn ask_meanwhile(bench: &Bench) -> JoinHandle<Output> {
    let socket = bench.socket();
    let mut command = Command::new(env!("CARGO_BIN_EXE_transomd"));
    command.arg("--upgrade").arg(socket);
    std::thread::spawn(move || command.output().unwrap())
}
