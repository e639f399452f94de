//! What the list of system calls does to a process: the listed ones work, any other one ends it.
//!
//! The list cannot be taken off, so each case runs in a process of its own: this program again, with one of the tests
//! that are ignored otherwise.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use transom_daemon::options::{FileHandles, SeccompMode};
use transom_daemon::seccomp::{self, Uses};

/// Restricts this process like a daemon that may hold inodes by file handles.
fn restrict(mode: SeccompMode) {
    seccomp::restrict(mode, Uses { file_handles: FileHandles::Prefer, observes_directories: false }).unwrap();
}

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
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    restrict(SeccompMode::Kill);
    // Threads start though clone3 is not there, and memory can be had.
    let sum = std::thread::spawn(|| vec![1_u8; 10 << 20].into_iter().map(u64::from).sum::<u64>()).join().unwrap();
    assert_eq!(sum, 10 << 20);
    assert!(std::fs::metadata("/").unwrap().is_dir());
    // Its own threads can be signalled, which the runtime's abort needs.
    assert_eq!(signal(std::process::id(), rustix::thread::gettid()), 0);
    let second = Some(std::time::Duration::from_secs(1));
    one.set_read_timeout(second).unwrap();
    one.set_write_timeout(second).unwrap();
    one.try_clone().unwrap().set_nonblocking(true).unwrap();
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
    restrict(SeccompMode::Kill);
    start_a_program();
}

#[test]
#[ignore = "a case of a_new_process_ends_the_one_that_starts_it"]
fn case_trapped() {
    restrict(SeccompMode::Trap);
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
    restrict(SeccompMode::Kill);
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
    restrict(SeccompMode::Kill);
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
    restrict(SeccompMode::None);
    assert!(start_a_program());
}

#[test]
#[ignore = "a case of without_a_filter_or_with_a_log_everything_works"]
fn case_logged() {
    restrict(SeccompMode::Log);
    assert!(start_a_program());
}

#[test]
fn calls_with_other_arguments_than_the_daemons_end_the_process() {
    for name in [
        "case_signal_to_another_process",
        "case_signals_of_a_descriptor",
        "case_thread_in_new_namespaces",
        "case_option_of_a_protocol",
        "case_filter_of_a_socket",
    ] {
        let status = run(name);
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{name}: {status}");
    }
}

#[test]
#[ignore = "a case of calls_with_other_arguments_than_the_daemons_end_the_process"]
fn case_signal_to_another_process() {
    let parent = rustix::process::getppid().unwrap();
    restrict(SeccompMode::Kill);
    // Signal 0 has no effect, and is allowed where any other would be.
    signal(parent.as_raw_pid().cast_unsigned(), parent);
}

#[expect(unsafe_code, reason = "tgkill")]
fn signal(process: u32, thread: rustix::process::Pid) -> libc::c_long {
    // SAFETY: the call takes three numbers, and signal 0 reaches no handler.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_pid(), 0) }
}

#[test]
#[ignore = "a case of calls_with_other_arguments_than_the_daemons_end_the_process"]
fn case_signals_of_a_descriptor() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let parent = rustix::process::getppid().unwrap();
    restrict(SeccompMode::Kill);
    set_owner(&one, parent);
}

#[expect(unsafe_code, reason = "fcntl")]
fn set_owner(socket: &std::os::unix::net::UnixStream, process: rustix::process::Pid) {
    use std::os::fd::AsRawFd;
    // SAFETY: the command takes a number.
    unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETOWN, process.as_raw_pid()) };
}

#[test]
#[ignore = "a case of calls_with_other_arguments_than_the_daemons_end_the_process"]
#[expect(unsafe_code, reason = "clone")]
fn case_thread_in_new_namespaces() {
    restrict(SeccompMode::Kill);
    let flags = libc::CLONE_THREAD | libc::CLONE_NEWUSER;
    // SAFETY: the kernel refuses CLONE_THREAD without CLONE_SIGHAND, so that no thread is started.
    unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
}

#[test]
#[ignore = "a case of calls_with_other_arguments_than_the_daemons_end_the_process"]
fn case_option_of_a_protocol() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    restrict(SeccompMode::Kill);
    let _ = rustix::net::sockopt::ip_ttl(&one);
}

#[test]
#[ignore = "a case of calls_with_other_arguments_than_the_daemons_end_the_process"]
fn case_filter_of_a_socket() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    restrict(SeccompMode::Kill);
    let _ = rustix::net::sockopt::set_socket_passcred(&one, true);
}

#[test]
fn a_daemon_without_handles_cannot_open_any() {
    assert!(run("case_handles").success());
    for name in ["case_open_by_handle_without_handles", "case_name_to_handle_without_handles"] {
        assert_eq!(run(name).signal(), Some(libc::SIGSYS), "{name}");
    }
}

#[test]
#[ignore = "a case of a_daemon_without_handles_cannot_open_any"]
fn case_handles() {
    restrict(SeccompMode::Kill);
    open_by_handle();
    name_to_handle();
}

#[test]
#[ignore = "a case of a_daemon_without_handles_cannot_open_any"]
fn case_open_by_handle_without_handles() {
    seccomp::restrict(SeccompMode::Kill, Uses { file_handles: FileHandles::Never, observes_directories: false })
        .unwrap();
    open_by_handle();
}

#[test]
#[ignore = "a case of a_daemon_without_handles_cannot_open_any"]
fn case_name_to_handle_without_handles() {
    seccomp::restrict(SeccompMode::Kill, Uses { file_handles: FileHandles::Never, observes_directories: false })
        .unwrap();
    name_to_handle();
}

#[expect(unsafe_code, reason = "open_by_handle_at")]
fn open_by_handle() {
    // SAFETY: a null pointer is refused with EFAULT.
    unsafe { libc::open_by_handle_at(-1, std::ptr::null_mut(), 0) };
}

#[expect(unsafe_code, reason = "name_to_handle_at")]
fn name_to_handle() {
    // SAFETY: null pointers are refused with EFAULT.
    unsafe { libc::name_to_handle_at(-1, c"".as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), 0) };
}
