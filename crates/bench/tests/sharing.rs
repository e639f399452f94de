//! The workers of several queues share no lock and no counter while each serves a file of its own.
//!
//! The daemon is the one that lies beside this program: `cargo build -p transom-daemon` builds it.

use std::{env, path::Path};

use transom_bench::{
    cost::{Operation, sharing},
    daemon::Candidate,
};

const SHARED_IN: &str = "/dev/shm";

#[test]
#[ignore = "a report of what workers share; run it by name"]
fn queues_are_served_by_threads_that_share_no_lock() {
    let this = env::current_exe().unwrap();
    let Some(daemon) = this.ancestors().nth(2).map(|dir| dir.join("transomd")).filter(|path| path.is_file()) else {
        return skipped("transomd is not built");
    };
    if !cfg!(target_arch = "x86_64") {
        return skipped("instructions are traced on x86_64 only");
    }
    if !rustix::process::geteuid().is_root() {
        return skipped("an ordinary user may not be allowed to trace the daemon");
    }
    let mut candidate = Candidate::named("transomd", &daemon).unwrap();
    candidate.args = vec!["--poll-us".into(), "0".into()];
    let separate = [Operation::Getattr, Operation::Read4k, Operation::Write4k, Operation::Flush, Operation::Fsync];
    for queues in [4, 8] {
        // These change the daemon's counts of descriptors, or use the directory that all have in common.
        let operations = [&separate[..], &[Operation::Open, Operation::Lookup]].concat();
        let found = match sharing::measure(&candidate, queues, &operations, Path::new(SHARED_IN)) {
            Ok(found) => found,
            Err(error) if format!("{error:#}").contains("not permitted") => return skipped(&format!("{error:#}")),
            Err(error) => panic!("{error:#}"),
        };
        for row in &found {
            println!("{queues} queues: {row:?}");
            assert_eq!(row.workers, usize::from(queues), "each queue has a thread of its own: {row:?}");
            assert!(row.words > 0, "locks are seen: {row:?}");
        }
        let shared: Vec<_> = found[..separate.len()].iter().filter(|row| row.shared > 0).collect();
        assert!(shared.is_empty(), "with {queues} queues, threads share what they need not: {shared:?}");
        assert!(found[separate.len()..].iter().all(|row| row.shared > 0), "what is shared is seen: {found:?}");
    }
}

fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
