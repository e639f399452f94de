//! transomd costs no more for a request than the file `data/cost.baseline` allows.
//!
//! The daemon is the one that lies beside this program: `cargo build -p transom-daemon` builds it.

use std::{env, path::Path};

use clap::ValueEnum as _;
use transom_bench::{
    cost::{self, Operation, Plan, baseline::Baseline},
    daemon::Candidate,
};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cost.baseline");
const SHARED_IN: &str = "/dev/shm";
/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
/// Counts are the same each time; three have a median.
const ROUNDS: u32 = 3;
/// How often an operation that seems to cost more is counted again: a thread of the daemon that wakes up meanwhile adds
/// to the counts of some requests, and what the code itself does is there each time.
const REPEATS: u32 = 8;

#[test]
fn no_operation_costs_more_than_the_baseline_allows() {
    let this = env::current_exe().unwrap();
    let Some(daemon) = this.ancestors().nth(2).map(|dir| dir.join("transomd")).filter(|path| path.is_file()) else {
        return skipped("transomd is not built");
    };
    if let Some(why) = unlike_the_baseline() {
        return skipped(why);
    }
    let mut candidate = Candidate::named("transomd", &daemon).unwrap();
    candidate.args = vec!["--poll-us".into(), "0".into()];
    let allowed = Baseline::parse(&std::fs::read_to_string(BASELINE).unwrap()).unwrap();
    let mut operations = Operation::value_variants().to_vec();
    let mut worse = Vec::new();
    for repeat in 0..=REPEATS {
        let plan = Plan {
            candidates: vec![candidate.clone()],
            depths: vec![1],
            operations: operations.clone(),
            rounds: ROUNDS,
        };
        let rows = match cost::measure(&plan, Path::new(SHARED_IN)) {
            Ok(rows) => rows,
            Err(error) if format!("{error:#}").contains("not permitted") => return skipped(&format!("{error:#}")),
            Err(error) => panic!("{error:#}"),
        };
        worse = allowed.worse(&Baseline::of(&rows));
        if repeat > 0 {
            // Only some were counted again.
            worse.retain(|line| operations.iter().any(|operation| is_about(line, *operation)));
        }
        operations.retain(|operation| worse.iter().any(|line| is_about(line, *operation)));
        if operations.is_empty() {
            break;
        }
    }
    assert!(
        worse.is_empty(),
        "transomd costs more than {BASELINE} allows:\n  {}\nif that is worth it, at the root of the tree: \
         cargo build && target/*/debug/transom bench cost --write-baseline",
        worse.join("\n  ")
    );
}

/// Returns whether a line of [`Baseline::worse`] is about `operation`.
fn is_about(line: &str, operation: Operation) -> bool {
    let value = operation.to_possible_value().expect("no operation is skipped on the command line");
    line.split_once(':').is_some_and(|(name, _)| name == value.get_name())
}

/// Returns what makes counts differ here from those of the baseline.
fn unlike_the_baseline() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("instructions are counted on x86_64 only");
    }
    if !cfg!(debug_assertions) {
        return Some("the baseline is of the dev profile");
    }
    if !rustix::process::geteuid().is_root() {
        return Some("an ordinary user's transomd holds inodes in another way; run as root");
    }
    match rustix::fs::statfs(SHARED_IN) {
        Ok(file_system) if file_system.f_type == TMPFS => None,
        _ => Some("/dev/shm is not a tmpfs"),
    }
}

fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
