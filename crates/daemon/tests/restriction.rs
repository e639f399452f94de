//! What the list of system calls does to a process: the listed ones work, any other one ends it.
//!
//! The list cannot be taken off, so each case runs in a process of its own: this program again, with one of the tests
//! that are ignored otherwise.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use transom_daemon::options::SeccompMode;
use transom_daemon::seccomp::restrict;

/// Runs the ignored test `name` alone, in a process of its own.
fn run(name: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", name, "--test-threads=1"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}

fn start_a_program() -> bool {
    Command::new("true").status().is_ok_and(|status| status.success())
}

#[test]
fn listed_calls_go_on_working() {
    assert!(run("case_listed").success());
}

#[test]
#[ignore = "a case of listed_calls_go_on_working"]
fn case_listed() {
    restrict(SeccompMode::Kill).unwrap();
    // Threads start though clone3 is not there, and memory can be had.
    let sum = std::thread::spawn(|| vec![1_u8; 10 << 20].into_iter().map(u64::from).sum::<u64>()).join().unwrap();
    assert_eq!(sum, 10 << 20);
    assert!(std::fs::metadata("/").unwrap().is_dir());
}

#[test]
fn a_new_process_ends_the_one_that_starts_it() {
    for name in ["case_killed", "case_trapped", "case_killed_in_an_older_thread"] {
        let status = run(name);
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{name}: {status}");
    }
}

#[test]
#[ignore = "a case of a_new_process_ends_the_one_that_starts_it"]
fn case_killed() {
    restrict(SeccompMode::Kill).unwrap();
    start_a_program();
}

#[test]
#[ignore = "a case of a_new_process_ends_the_one_that_starts_it"]
fn case_trapped() {
    restrict(SeccompMode::Trap).unwrap();
    start_a_program();
}

#[test]
#[ignore = "a case of a_new_process_ends_the_one_that_starts_it"]
fn case_killed_in_an_older_thread() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let older = std::thread::spawn(move || {
        let _ = wait.recv();
        start_a_program()
    });
    restrict(SeccompMode::Kill).unwrap();
    drop(go);
    let _ = older.join();
}

#[test]
fn code_cannot_be_made_from_data() {
    assert_eq!(run("case_executable_memory").signal(), Some(libc::SIGSYS));
}

#[test]
#[ignore = "a case of code_cannot_be_made_from_data"]
fn case_executable_memory() {
    restrict(SeccompMode::Kill).unwrap();
    // A private mapping of a file that is to be executed, as a loader makes them.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    map_executable(&file);
}

#[expect(unsafe_code, reason = "a mapping")]
fn map_executable(file: &std::fs::File) {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: without a given address the mapping replaces nothing, and nothing reads it.
    let _ = unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::EXEC, MapFlags::PRIVATE, file, 0) };
}

#[test]
fn without_a_filter_or_with_a_log_everything_works() {
    for name in ["case_none", "case_logged"] {
        assert!(run(name).success(), "{name}");
    }
}

#[test]
#[ignore = "a case of without_a_filter_or_with_a_log_everything_works"]
fn case_none() {
    restrict(SeccompMode::None).unwrap();
    assert!(start_a_program());
}

#[test]
#[ignore = "a case of without_a_filter_or_with_a_log_everything_works"]
fn case_logged() {
    restrict(SeccompMode::Log).unwrap();
    assert!(start_a_program());
}
