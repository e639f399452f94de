use std::{collections::HashSet, mem::discriminant};

use super::*;

/// What `value` returns for all scenarios, and for those of `make test`, must be the same.
fn keeps<T: Eq + std::hash::Hash + std::fmt::Debug>(value: impl Fn(&Scenario) -> Option<T>) {
    let all = all();
    let of_all: HashSet<T> = all.iter().filter_map(&value).collect();
    let of_test: HashSet<T> = all.iter().filter(|scenario| scenario.runs_by_default).filter_map(&value).collect();
    let lost: Vec<_> = of_all.difference(&of_test).collect();
    assert!(lost.is_empty(), "in no cell that `make test` runs: {lost:?}");
}

#[test]
fn what_may_hang_a_guest_is_left_out_of_all_cells_and_has_a_name() {
    let left_out = all().into_iter().filter(|scenario| scenario.defect_of_guest().is_some());
    let names: Vec<_> = left_out.map(|scenario| scenario.name()).collect();
    assert_eq!(
        names,
        [
            "qemu-7/transomd/dax-always-16M,cache=never,no-dax-guard/fsx-60s",
            "qemu-7/transomd/dax-inode-16M,cache=never,no-dax-guard,dax-policy=always/fsx-60s"
        ]
    );
    assert!(all().iter().all(|scenario| !(scenario.runs_by_default && scenario.defect_of_guest().is_some())));
}

#[test]
fn each_kernel_has_a_cell_with_a_window_and_each_daemon_one() {
    keeps(|scenario| {
        Some(format!("{:?} {}", scenario.guest, scenario.dax.is_some())).filter(|_| scenario.dax.is_some())
    });
    // A machine with QEMU's own device, which has no window.
    keeps(|scenario| {
        let is_nvdimm = matches!(scenario.job, Job::Crashes { .. } | Job::SyncFaults { .. });
        (matches!(scenario.guest, Guest::Qemu(_)) && scenario.dax.is_none() && !is_nvdimm).then_some(())
    });
    keeps(|scenario| Some(format!("{:?}", scenario.daemon)));
    keeps(|scenario| match scenario.guest {
        Guest::Qemu(_) => None,
        guest => Some(format!("{guest:?}")),
    });
}

#[test]
fn each_cache_mode_has_a_cell_of_cases() {
    keeps(|scenario| {
        (scenario.job == Job::Cases && scenario.dax.is_none() && scenario.daemon == Daemon::Transomd)
            .then_some(scenario.options)
    });
}

#[test]
fn each_kind_of_job_has_a_cell_but_those_that_measure() {
    keeps(|scenario| (!matches!(scenario.job, Job::SyncFaults { .. })).then_some(discriminant(&scenario.job)));
}

#[test]
fn pjdfstest_has_a_cell_on_each_kind_of_guest() {
    keeps(|scenario| match (scenario.job, scenario.guest) {
        (Job::Pjdfstest, Guest::Qemu(_)) => Some("qemu"),
        (Job::Pjdfstest, Guest::Uml | Guest::UmlOverlay(_)) => Some("uml"),
        (Job::Pjdfstest, Guest::Mount | Guest::Passthrough | Guest::Coherent) => Some("mount"),
        _ => None,
    });
}
