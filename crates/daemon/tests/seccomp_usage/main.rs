//! The list of allowed system calls is the list of those made: none is missing, none is there for nothing.
//!
//! A daemon serves `workload` under strace with `--seccomp log`, which lets every call pass, and `trace` collects the
//! calls made after the list came into force. `TRANSOMD_TRACES` names a folder with traces of other runs, such as those
//! of guests, which then count as well: `strace -f -qq -s 0 -e signal=none -o FOLDER/NAME transomd --seccomp log …`.

#[path = "../launch/mod.rs"]
mod launch;
mod trace;
mod workload;

use launch::{Bench, is_root, skipped};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use transom_daemon::options::FileHandles;
use transom_daemon::seccomp::{self, Uses};

/// Returns the names of the calls on the list.
fn listed(file_handles: FileHandles) -> BTreeSet<String> {
    seccomp::calls(Uses { file_handles, observes_directories: false }).map(|call| call.name().to_owned()).collect()
}

/// `--seccomp log` says nothing of arguments; a daemon that is killed over the first wrong one does.
#[test]
fn a_restricted_daemon_serves_everything() {
    if !is_root() {
        return skipped("an ordinary user's daemon makes fewer calls");
    }
    for options in workload::DAEMONS {
        let bench = Bench::new();
        let mut daemon = bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} --seccomp kill {options}"));
        let served = workload::run(daemon.connect(), &bench.share());
        let (status, said) = daemon.wait();
        assert!(status.success() && served.is_ok(), "{options}: {served:?}: {status}: {said}");
    }
}

#[test]
fn the_calls_made_are_the_calls_listed() {
    if !is_root() {
        return skipped("an ordinary user's daemon makes fewer calls");
    }
    if !Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return skipped("strace is not installed");
    }
    let mut made = BTreeSet::new();
    let mut missing = BTreeSet::new();
    for options in workload::DAEMONS {
        let bench = Bench::new();
        let trace = bench.path().join("trace");
        let line = format!("--socket-path {{S}} --shared-dir {{D}} --seccomp log {options}");
        let mut daemon = bench.start_traced(&trace, &line);
        let stream = daemon.connect();
        if let Err(error) = workload::run(stream, &bench.share()) {
            panic!("{options}: {error:#}: {:?}", daemon.wait());
        }
        let (status, said) = daemon.wait();
        assert!(status.success(), "{options}: {status}: {said}");
        let made_now = trace::calls_in(&trace).unwrap();
        let is_without_handles = options.contains("--inode-file-handles=never");
        let file_handles = if is_without_handles { FileHandles::Never } else { FileHandles::Prefer };
        missing.extend(made_now.difference(&listed(file_handles)).cloned());
        made.extend(made_now);
    }
    if let Some(folder) = std::env::var_os("TRANSOMD_TRACES") {
        for entry in std::fs::read_dir(folder).unwrap() {
            made.extend(trace::calls_in(&entry.unwrap().path()).unwrap());
        }
    }

    missing.extend(made.difference(&listed(FileHandles::Prefer)).cloned());
    let unused = seccomp::calls(Uses { file_handles: FileHandles::Prefer, observes_directories: false })
        .filter(|call| !call.is_rare && !made.contains(call.name()));
    let unused: Vec<_> = unused.map(|call| format!("{} ({})", call.name(), call.why)).collect();
    assert!(
        missing.is_empty() && unused.is_empty(),
        "made, but not on the list: {missing:?}; on the list, but never made: {unused:#?}"
    );
}
