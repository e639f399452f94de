//! The process that serves is killed at random moments (`--resilient`): the guest finds all as it was.
//!
//! Some deaths by default; `cargo test -p transom-cli --test upgrade deaths -- --ignored --nocapture` for 200, or as
//! many as `TRANSOM_DEATHS` says.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Emulator, Guest, Needs, OPTIONS, STEP_MAX};

/// The daemon gives up at the third death within ten seconds.
const DEATH_EVERY: Duration = Duration::from_millis(5100);

/// Returns the process that serves the socket: the last one in the line of children of the process with the pid file.
fn serving(socket: &Path) -> Option<i32> {
    let pid_file = format!("{}.pid", socket.display());
    let mut pid = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    while let Ok(children) = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        && let Some(child) = children.split_whitespace().next()
    {
        pid = child.parse().ok()?;
    }
    Some(pid)
}

fn die_repeatedly(needs: &Needs, count: u32) {
    let options: Vec<_> = ["--resilient"].iter().chain(OPTIONS).copied().collect();
    let guest = Guest::start(needs, &options, 2 * STEP_MAX + DEATH_EVERY * 4 * count);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Another moment each time.
        thread::sleep(DEATH_EVERY + Duration::from_micros(random % 400_000));
        guest.assert_locked();
        let pid = serving(&guest.socket).unwrap();
        let before = guest.progress();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let begun = Instant::now();
        guest.assert_locked();
        guest.wait_until_beyond(before + 5);
        println!("the guest counts {} again after {} ms", guest.progress(), begun.elapsed().as_millis());
        assert_ne!(serving(&guest.socket), Some(pid));
    }
    guest.end();
}

#[test]
fn a_guest_works_on_when_its_daemon_is_killed() {
    let Some(needs) = Needs::find("a_guest_works_on_when_its_daemon_is_killed", Emulator::Usual) else { return };
    die_repeatedly(&needs, 10);
}

#[test]
#[ignore = "200 deaths take 20 minutes"]
fn deaths_under_load() {
    let Some(needs) = Needs::find("deaths_under_load", Emulator::Usual) else { return };
    die_repeatedly(&needs, std::env::var("TRANSOM_DEATHS").map_or(200, |count| count.parse().unwrap()));
}
