//! transomd costs no more for a request than the file `data/cost.baseline` allows, and the guest library no more for an
//! operation than `data/library.baseline`.
//!
//! The programs are those that lie beside this one: `cargo build --workspace` builds them.

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use transom_bench::{
    cost::{self, Operation, Plan, Row, baseline::Baseline},
    daemon::Candidate,
    library,
};

const SHARED_IN: &str = "/dev/shm";
/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
/// How the programs of the baselines are built: as `make test` builds.
const BUILD: [(&str, &str); 3] =
    [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "4"), ("CARGO_PROFILE_DEV_LTO", "off")];
/// Counts are the same each time; three have a median.
const ROUNDS: u32 = 3;
/// How often an operation that seems to cost more is counted again: a thread of the daemon that wakes up meanwhile adds
/// to the counts of some requests, and what the code itself does is there each time.
const REPEATS: u32 = 8;

#[test]
fn no_operation_costs_more_than_the_baseline_allows() {
    let [daemon] = match programs(["transomd"]) {
        Ok(programs) => programs,
        Err(why) => return skipped(&why),
    };
    let measure = |operations: &[Operation]| {
        let plan = Plan {
            candidates: vec![without_polling(&daemon)],
            depths: vec![1],
            operations: operations.to_vec(),
            rounds: ROUNDS,
        };
        cost::measure(&plan, Path::new(SHARED_IN))
    };
    compare("cost.baseline", "--write-baseline", Operation::value_variants().to_vec(), measure);
}

/// Not in the default run, because it traces two processes for half a minute.
#[test]
#[ignore = "by name: cargo test --workspace --test cost -- --ignored library"]
fn no_operation_of_the_guest_library_costs_more_than_its_baseline_allows() {
    let [daemon, program] = programs(["transomd", "transom"]).expect("a test that runs by name compares");
    let measure = |operations: &[library::Operation]| {
        let plan = cost::library::Plan {
            program: &program,
            candidate: without_polling(&daemon),
            operations: operations.to_vec(),
            rounds: ROUNDS,
        };
        cost::library::measure(&plan, Path::new(SHARED_IN))
    };
    compare("library.baseline", "--library --write-baseline", cost::library::operations(), measure);
}

/// Counts `operations` and compares them with `file` of `data`. `accept` are the options that write it.
fn compare<O: ValueEnum + Copy>(
    file: &str,
    accept: &str,
    mut operations: Vec<O>,
    measure: impl Fn(&[O]) -> anyhow::Result<Vec<Row>>,
) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(file);
    let allowed = Baseline::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut worse = Vec::new();
    for repeat in 0..=REPEATS {
        let rows = match measure(&operations) {
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
        "more than {} allows:\n  {}\nif that is worth it, at the root of the tree: \
         {} cargo build --workspace && target/*/debug/transom bench cost {accept}",
        path.display(),
        worse.join("\n  "),
        BUILD.map(|(name, value)| format!("{name}={value}")).join(" ")
    );
}

/// Returns the programs of these names, which lie beside this one, or why counts here are not those of the baselines.
fn programs<const N: usize>(names: [&str; N]) -> Result<[PathBuf; N], String> {
    let this = env::current_exe().unwrap();
    let dir = this.ancestors().nth(2).unwrap();
    if let Some(name) = names.iter().find(|name| !dir.join(name).is_file()) {
        return Err(format!("{name} is not built"));
    }
    match unlike_the_baseline() {
        Some(why) => Err(why.to_owned()),
        None => Ok(names.map(|name| dir.join(name))),
    }
}

fn without_polling(daemon: &Path) -> Candidate {
    let mut candidate = Candidate::named("transomd", daemon).unwrap();
    candidate.args = vec!["--poll-us".into(), "0".into()];
    candidate
}

/// Returns whether a line of [`Baseline::worse`] is about `operation`.
fn is_about<O: ValueEnum>(line: &str, operation: O) -> bool {
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
    if BUILD.iter().any(|(name, value)| env::var(name).as_deref() != Ok(value)) {
        return Some("the baseline is of a build with the settings that scripts/test exports");
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
