//! An idle share sleeps: nothing wakes the daemon, however long it may poll.
//!
//! The daemon is the one that lies beside this program: `cargo build -p transom-daemon` builds it.

use std::{env, path::Path, time::Duration};

use transom_bench::{
    daemon::Candidate,
    polling::{self, Plan, Scene},
};

/// Wakes of an idle share while it is watched: a thread may be on its way to sleep when that begins. A timer of the
/// daemon would add at least one in each tenth of a second.
const WAKES_MAX: u64 = 3;
const WATCHED_FOR: Duration = Duration::from_secs(2);

#[test]
fn nothing_wakes_an_idle_share() {
    let this = env::current_exe().unwrap();
    let Some(daemon) = this.ancestors().nth(2).map(|dir| dir.join("transomd")).filter(|path| path.is_file()) else {
        return eprintln!("SKIPPED: transomd is not built");
    };
    let plan = Plan {
        daemon: Candidate::named("transomd", &daemon).unwrap(),
        settings: vec![None, Some(1000)],
        scenes: vec![Scene::Idle],
        rounds: 1,
        time: WATCHED_FOR,
    };
    for sample in polling::measure(&plan, Path::new("/dev/shm")).unwrap() {
        let wakes = sample.daemon_wakes;
        assert!(wakes <= WAKES_MAX, "an idle share was woken {wakes} times in {WATCHED_FOR:?}: {sample:?}");
    }
}
