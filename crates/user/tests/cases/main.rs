//! The list of file-system cases, on shares that this process has mounted: the same results as on a bare directory.
//!
//! What differs is listed with its reason in [`known`]: `LIBRARY_GUEST` for every daemon, `VIRTIOFSD` for the peer.

#[path = "../common/mod.rs"]
mod common;
mod program;
mod subject;
mod vfs;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use subject::{Directories, Guests, Paths};
use tempfile::TempDir;
use transom_conformance::{
    case::Definition,
    cases, compare, known,
    report::{Report, Status},
    runner::{self, Directory, Subject},
    split,
};
use transom_user::{daemon::Program, share::Share};
use transom_vm::{
    packages::{Cache, OnStderr, Packages},
    peer::c_virtiofsd,
};

/// Far above what a case takes here on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// What a share needs to be as good as the bare directory, and is off unless asked for.
const ALWAYS: [&str; 4] = ["--xattr", "--preserve-noatime", "--killpriv-v2", "--modcaps=+sys_admin:+linux_immutable"];

/// Cases that need locks.
const LOCKS: [&str; 4] = ["locks/", "flock/", "lock-waits/", "unlinked/locks"];

#[test]
fn cases_on_transomd_give_what_the_bare_directory_gives() {
    let mut program = common::transomd();
    program.args.extend(ALWAYS.into_iter().chain(["--birth-times", "--posix-lock", "--flock"]).map(Into::into));
    compare_with_oracle(&program, &[known::LIBRARY_GUEST]);
}

#[test]
fn cases_on_virtiofsd_give_what_the_bare_directory_gives() {
    let Some(mut program) = common::peer() else {
        println!("SKIPPED: {}", common::NO_PEER);
        return;
    };
    // Linux asks again where a removed inode that was held by a file handle is ESTALE; this guest has no need to.
    program.args.extend(ALWAYS.into_iter().chain(["--inode-file-handles=never"]).map(Into::into));
    compare_with_oracle(&program, &[known::LIBRARY_GUEST, known::VIRTIOFSD, known::LIBRARY_GUEST_VIRTIOFSD]);
}

#[test]
fn cases_on_qemus_virtiofsd_give_what_the_bare_directory_gives() {
    let (cache, report) = (Cache::locate().unwrap(), OnStderr::default());
    let mut program = match c_virtiofsd(&Packages::new(&cache, &report)) {
        Ok(path) => Program::new(path),
        Err(error) => {
            println!("SKIPPED: there is no virtiofsd of QEMU 7.2, in C: {error}");
            return;
        }
    };
    let options = ["xattr", "posix_lock", "flock", "modcaps=+sys_admin:+linux_immutable"];
    program.args.extend(options.into_iter().flat_map(|option| ["-o", option]).map(Into::into));
    compare_with_oracle(&program, &[known::LIBRARY_GUEST, known::LIBRARY_GUEST_VIRTIOFSD_C]);
}

#[test]
fn cases_by_paths_with_caches_give_what_the_bare_directory_gives() {
    let mut program = common::transomd();
    program.args.extend(ALWAYS.into_iter().chain(["--posix-lock", "--flock"]).map(Into::into));
    let (dir, mount) = mount(&program);
    judge(&run(Arc::new(Paths::new(&mount))), &[known::LIBRARY_GUEST, known::LIBRARY_PATHS]);
    drop(dir);
}

#[test]
fn cases_by_paths_with_the_caches_of_a_group_give_what_the_bare_directory_gives() {
    let group = tempfile::tempdir().unwrap();
    let (dir, mount) = mount(&member(&group));
    judge(&run(Arc::new(Paths::shared(&mount))), &[known::LIBRARY_GUEST, known::LIBRARY_PATHS]);
    drop(dir);
}

#[test]
fn cases_in_which_one_guest_of_a_group_acts_and_another_looks_give_what_the_bare_directory_gives() {
    let group = tempfile::tempdir().unwrap();
    let (dir, first) = mount(&member(&group));
    let second = Share::builder().shared_dir(dir.path()).daemon(member(&group)).connect().unwrap();
    let guests = Guests::new(Paths::shared(&first), Paths::shared(&second));
    let (cases, mut reports) = split::divide(cases::all());
    reports.extend(runner::run(&(Arc::new(guests) as Arc<dyn Subject>), &cases, 2, LIMIT, &mut |_| {}));
    judge(&reports, &[known::LIBRARY_GUEST, known::LIBRARY_PATHS, known::SPLIT]);
    drop(dir);
}

/// Guests that never look at the table must fail, or the cases that are split show nothing.
#[test]
fn cases_that_are_split_catch_a_guest_that_uses_what_it_has_cached_without_a_look() {
    let group = tempfile::tempdir().unwrap();
    let (dir, first) = mount(&member(&group));
    let mut program = member(&group);
    program.args.push("--cache=always".into());
    let second = Share::builder().shared_dir(dir.path()).daemon(program).connect().unwrap();
    let guests: Arc<dyn Subject> = Arc::new(Guests::new(Paths::shared(&first), Paths::always(&second)));
    let is_meant = |case: &Definition| ["rename/", "data/", "modes/"].iter().any(|group| case.name.starts_with(group));
    let (cases, _) = split::divide(cases::all().filter(is_meant));
    let reports = runner::run(&guests, &cases, 2, LIMIT, &mut |_| {});
    let failed = reports.iter().filter(|report| report.status == Status::Fail).count();
    println!("{failed} of {} failed", reports.len());
    assert!(failed * 4 > reports.len(), "{failed} of {} failed", reports.len());
    drop(dir);
}

#[test]
fn cases_by_paths_through_a_small_window_give_what_the_bare_directory_gives() {
    let mut program = common::transomd();
    let window = ["--tag=share", "--dax-window=4M", "--dax-policy=always", "--front-end=alioth"];
    program.args.extend(ALWAYS.into_iter().chain(["--posix-lock", "--flock"]).chain(window).map(Into::into));
    let (dir, mount) = mount(&program);
    judge(&run(Arc::new(Paths::mapped(&mount))), &[known::LIBRARY_GUEST, known::LIBRARY_PATHS]);
    drop(dir);
}

#[test]
fn lock_cases_by_paths_on_daemons_that_keep_none_give_what_the_bare_directory_gives() {
    for program in common::daemons() {
        let (dir, mount) = mount(&program);
        judge_some(Arc::new(Paths::new(&mount)), &LOCKS, &[known::LIBRARY_GUEST, known::LIBRARY_PATHS]);
        drop(dir);
    }
}

#[test]
fn acl_cases_by_paths_give_what_the_bare_directory_gives() {
    let mut program = common::transomd();
    program.args.extend(ALWAYS.into_iter().chain(["--posix-acl"]).map(Into::into));
    let (dir, mount) = mount(&program);
    judge_some(Arc::new(Paths::new(&mount)), &["acls/"], &[]);
    drop(dir);
}

/// A daemon of a group.
fn member(group: &TempDir) -> Program {
    let mut program = common::transomd();
    program.args.extend(ALWAYS.into_iter().chain(["--posix-lock", "--flock", "--front-end=alioth"]).map(Into::into));
    program.args.extend(["--coherence-group".into(), group.path().join("group").into()]);
    program
}

fn compare_with_oracle(program: &Program, lists: &[&str]) {
    let (dir, mount) = mount(program);
    judge(&run(Arc::new(Directories::new(&mount))), lists);
    drop(dir);
}

/// A share on the disk, which goes with the directory.
fn mount(program: &Program) -> (TempDir, Share) {
    let dir = common::on_disk();
    let mount = Share::builder().shared_dir(dir.path()).daemon(program.clone()).connect().unwrap();
    (dir, mount)
}

fn judge(found: &[Report], lists: &[&str]) {
    judge_against(oracle(), found, lists);
}

/// Runs the cases whose names begin so.
fn judge_some(subject: Arc<dyn Subject>, beginnings: &[&str], lists: &[&str]) {
    let is_meant = |name: &str| beginnings.iter().any(|beginning| name.starts_with(beginning));
    let expected: Vec<_> = oracle().iter().filter(|report| is_meant(&report.name)).cloned().collect();
    judge_against(&expected, &run_some(subject, is_meant), lists);
}

fn judge_against(expected: &[Report], found: &[Report], lists: &[&str]) {
    let allowed: Vec<_> = lists.iter().flat_map(|list| compare::parse_allowed(list).unwrap()).collect();
    let differences = compare::differences(expected, found, &allowed, false);
    let (known, unknown): (Vec<_>, Vec<_>) = differences.iter().partition(|difference| difference.allowed.is_some());
    let passed = found.iter().filter(|report| report.status == Status::Pass).count();
    println!("{passed} of {} passed, {} differ as known", found.len(), known.len());
    for difference in &unknown {
        println!(
            "{} {}\n    expected: {}\n    found:    {}",
            difference.case, difference.what, difference.expected, difference.found
        );
    }
    assert!(unknown.is_empty(), "{} differences that no list explains", unknown.len());
}

/// The results on the bare directory; run once.
fn oracle() -> &'static [Report] {
    static ORACLE: OnceLock<Vec<Report>> = OnceLock::new();
    ORACLE.get_or_init(|| {
        let dir = common::on_disk();
        let reports = run(Arc::new(Directory::new(dir.path()).unwrap()));
        let failed: Vec<_> = reports.iter().filter(|report| report.status == Status::Fail).collect();
        assert!(failed.is_empty(), "the bare directory fails: {failed:?}");
        reports
    })
}

fn run(subject: Arc<dyn Subject>) -> Vec<Report> {
    run_some(subject, |_| true)
}

fn run_some(subject: Arc<dyn Subject>, is_meant: impl Fn(&str) -> bool) -> Vec<Report> {
    let cases: Vec<_> = cases::all().filter(|case| is_meant(case.name)).collect();
    runner::run(&subject, &cases, 2, LIMIT, &mut |_| {})
}
