//! An idle share sleeps: nothing wakes the daemon, however long it may poll.
//!
//! The daemon is the one that lies beside this program: `cargo build -p transom-daemon` builds it.

use std::{env, path::Path, time::Duration};

use clap::ValueEnum as _;
use transom_bench::{
    daemon::Candidate,
    polling::{self, Plan, PollingReport, Scene},
    report::Facts,
};

/// Wakes of an idle share while it is watched: a thread may be on its way to sleep when that begins. A timer of the
/// daemon would add at least one in each tenth of a second.
const WAKES_MAX: u64 = 3;
const WATCHED_FOR: Duration = Duration::from_secs(2);

/// Returns the daemon, if it is built.
fn transomd() -> Option<Candidate> {
    let this = env::current_exe().unwrap();
    let daemon = this.ancestors().nth(2).map(|dir| dir.join("transomd")).filter(|path| path.is_file());
    if daemon.is_none() {
        eprintln!("SKIPPED: transomd is not built");
    }
    daemon.map(|path| Candidate::named("transomd", &path).unwrap())
}

#[test]
fn each_scene_has_requests_of_all_its_guests_and_is_in_the_table() {
    let Some(daemon) = transomd() else { return };
    let scenes = Scene::value_variants().to_vec();
    let plan = Plan { daemon, settings: vec![None, Some(0)], scenes, rounds: 1, time: Duration::from_millis(20) };
    let samples = polling::measure(&plan, Path::new("/dev/shm")).unwrap();
    assert_eq!(samples.len(), 8);
    for sample in &samples {
        assert_eq!(sample.requests == 0, sample.scene == Scene::Idle, "{sample:?}");
        assert_eq!(sample.computed == 0, sample.scene != Scene::HostComputes, "{sample:?}");
        // No request takes less than a system call.
        assert_eq!(sample.latency_p50_ns > 100, sample.scene != Scene::Idle, "{sample:?}");
        assert_eq!(sample.shares, if sample.scene == Scene::EightBusy { 8 } else { 1 });
    }
    let facts = Facts::collect(None, Path::new("/dev/shm"));
    print!("{}", polling::markdown(&PollingReport { command: Vec::new(), facts, samples }));
}

#[test]
fn nothing_wakes_an_idle_share() {
    let Some(daemon) = transomd() else { return };
    let plan =
        Plan { daemon, settings: vec![None, Some(1000)], scenes: vec![Scene::Idle], rounds: 1, time: WATCHED_FOR };
    for sample in polling::measure(&plan, Path::new("/dev/shm")).unwrap() {
        let wakes = sample.daemon_wakes;
        assert!(wakes <= WAKES_MAX, "an idle share was woken {wakes} times in {WATCHED_FOR:?}: {sample:?}");
    }
}
