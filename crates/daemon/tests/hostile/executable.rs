//! The same harm to transomd itself, with a directory that it shares.

use std::{os::unix::net::UnixStream, thread, time::Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use transom_frontend::message::HANG_AFTER;
use transom_wire::{Opcode, ops::init::InitFlags};

use crate::{host::Daemon, messages, requests, rings};

#[test]
fn transomd_survives_random_rings() {
    rings::random_rings(&Daemon::executable());
}

#[test]
fn transomd_survives_any_message() {
    messages::any_messages(&Daemon::executable());
}

#[test]
fn transomd_survives_any_request() {
    // FALLOCATE of any length would fill the disk of whoever runs this.
    let served = requests::any_requests(&Daemon::executable(), &[Opcode::Setlkw, Opcode::Fallocate]);
    assert_eq!(served, 70);
}

#[test]
fn transomd_outlives_a_shortage_of_descriptors() {
    let daemon = Daemon::executable_logging("debug");
    let says = |words| {
        let begun_at = Instant::now();
        while !daemon.log().contains(words) {
            assert!(begun_at.elapsed() < HANG_AFTER, "it does not say '{words}'");
            thread::yield_now();
        }
    };
    says("ready for a front end");
    // 1. It may open nothing more, and says so. The front end may have been let in before, and is sent away then.
    let pid = daemon.pid();
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(8), maximum }).unwrap();
    let waiting = UnixStream::connect(daemon.socket()).unwrap();
    says("cannot accept a front end yet");
    drop(waiting);
    // 2. It goes on when it may.
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    daemon.is_healthy();
}

#[test]
fn transomd_keeps_no_descriptor_of_a_front_end_that_left() {
    let daemon = Daemon::executable();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid().as_raw_pid())).unwrap().count();
    daemon.is_healthy();
    let mut seen = Vec::new();
    for _ in 0..20 {
        daemon.is_healthy();
        // A connection that is served: what the one before had is closed.
        let _front_end = daemon.connect();
        seen.push(descriptors());
    }
    assert_eq!(seen.first(), seen.last(), "{seen:?}");
}

#[test]
fn a_guest_cannot_fill_the_log() {
    const MESSAGES: usize = 3000;
    let daemon = Daemon::executable_logging("info");
    let (_front_end, mut session) = daemon.session();
    for _ in 0..MESSAGES {
        session.init(InitFlags::all()).unwrap();
    }
    // 200 pass at once, and one for each second that this took.
    let lines = daemon.log().lines().count();
    assert!((100..MESSAGES / 2).contains(&lines), "{lines} lines for {MESSAGES} messages");
}

#[test]
fn transomd_serves_a_session() {
    Daemon::executable().is_healthy();
}
