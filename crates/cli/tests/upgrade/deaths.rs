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

/// Returns the process that serves: the last one in the line of children of the one that `transomd` was started as by
/// this process.
fn serving(transomd: &Path) -> Option<i32> {
    let is_transomd = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == transomd);
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let mut children = threads.flat_map(|thread| children_of(&thread.unwrap().path()));
    let mut pid = children.find(is_transomd)?;
    while let Some(&child) = children_of(format!("/proc/{pid}/task/{pid}").as_ref()).first() {
        pid = child;
    }
    Some(pid)
}

/// Returns the processes that a thread has started.
fn children_of(thread: &Path) -> Vec<i32> {
    let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
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
        let pid = serving(&guest.transomd).unwrap();
        let before = guest.progress();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let begun = Instant::now();
        guest.assert_locked();
        guest.wait_until_beyond(before + 5);
        println!("the guest counts {} again after {} ms", guest.progress(), begun.elapsed().as_millis());
        assert_ne!(serving(&guest.transomd), Some(pid));
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
