//! `transom run` on the command line, with guests under QEMU.
//!
//! The daemon is `$TRANSOM_DAEMON`, or the `transomd` that was built. Every run has a directory for its temporary
//! files, which must be empty afterwards, and whose name identifies the run's processes.

mod needs;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use needs::is_skipped;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Well above the time of a boot on a busy machine, so that only a run that hangs reaches it.
const LIMIT_S: &str = "120";
/// Limit for killed processes to disappear.
const GONE_MAX: Duration = Duration::from_secs(20);

/// A directory to share, and one for the run's own files.
struct Fixture {
    share: TempDir,
    run: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { share: tempfile::tempdir().unwrap(), run: tempfile::tempdir().unwrap() }
    }

    /// `transom run` with the share at `/share` and these arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        let share = format!("{}:/share", self.share.path().display());
        command.args(["run", "--timeout", LIMIT_S, "--share", &share]).args(arguments);
        command.env("TMPDIR", self.run.path()).env_remove("XDG_RUNTIME_DIR");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts `transom run` with `arguments`, and returns once the command in the guest has written a line.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let output = child.wait_with_output().unwrap();
            panic!("the command said {line:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        child
    }

    /// Returns the command lines of this run's processes, except `transom` itself.
    fn processes(&self) -> Vec<String> {
        let name = self.run.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(name)).collect()
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        let left: Vec<_> = fs::read_dir(self.run.path()).unwrap().flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

/// Returns ten megabytes in which every pair of byte values occurs.
fn bytes_of_every_kind() -> Vec<u8> {
    let mut state = 1_u32;
    let next = std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    next.take(10 << 20).collect()
}

#[test]
fn bytes_pass_unchanged_in_all_directions_with_the_exit_status() {
    if is_skipped("bytes_pass_unchanged") {
        return;
    }
    // 1. The guest copies its input to the share and to its standard output, and writes a word to standard error.
    let fixture = Fixture::new();
    let bytes = bytes_of_every_kind();
    let script = "tee copy; echo \"$WORD in $PWD\" >&2; exit 7";
    let mut command = fixture.command(&["--env", "WORD=hello", "--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let sender = thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().unwrap();
    sender.join().unwrap().unwrap();

    // 2. Both copies are identical to the input, with nothing added.
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{error}");
    assert_eq!(error, "hello in /share\n");
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    assert!(fs::read(fixture.share.path().join("copy")).unwrap() == bytes);
    fixture.assert_nothing_is_left();
}

#[test]
fn the_host_root_has_the_hosts_programs_and_keeps_nothing() {
    if is_skipped("the_host_root") {
        return;
    }
    let fixture = Fixture::new();
    let name = format!("/etc/{}", fixture.run.path().file_name().unwrap().to_str().unwrap());
    let script = format!("cmp /etc/os-release os-release && echo x > {name} && cat {name} && kill -TERM $$");
    fs::copy("/etc/os-release", fixture.share.path().join("os-release")).unwrap();
    let output = fixture.run(&["--root", "/", "--", "/bin/sh", "-c", &script]);

    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(128 + 15), &b"x\n"[..]), "{error}");
    assert!(!Path::new(&name).exists());
    fixture.assert_nothing_is_left();
}

/// A guest that is not told the rate of its counter measures it against an emulated timer, and is wrong by a factor of
/// three now and then where the host is busy.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_clock_of_an_emulated_guest_runs_as_fast_as_the_hosts() {
    if is_skipped("the_clock_of_an_emulated_guest") {
        return;
    }
    let fixture = Fixture::new();
    let script = "while read -r _; do cut -d ' ' -f 1 /proc/uptime; done; dmesg; cat /proc/cmdline";
    let mut command = fixture.command(&["--accel", "tcg", "--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());

    // 1. The guest's clock, twice, each time between two looks at the host's.
    let mut look = || {
        let before = Instant::now();
        stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        (before, line.trim().parse::<f64>().unwrap(), Instant::now())
    };
    let (first_begun, first, first_ended) = look();
    thread::sleep(Duration::from_secs(2));
    let (second_begun, second, second_ended) = look();
    let least = second_begun.duration_since(first_ended).as_secs_f64();
    let most = second_ended.duration_since(first_begun).as_secs_f64();
    assert!((least * 0.9..most * 1.1).contains(&(second - first)), "{} s, of {least} to {most}", second - first);

    // 2. The kernel uses the rate that it is told.
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    let number = |name: &str| -> f64 {
        let after = rest.rsplit(name).next().unwrap();
        after.split_ascii_whitespace().next().unwrap().parse().unwrap_or_else(|_| panic!("{name}: {rest}"))
    };
    let (told_khz, used_mhz) = (number("tsc_early_khz="), number("tsc: Detected "));
    assert!((used_mhz * 1000.0 - told_khz).abs() < 1.0, "{told_khz} {used_mhz}");
}

#[test]
fn the_first_interrupt_is_the_commands_and_nothing_is_left() {
    if is_skipped("the_first_interrupt") {
        return;
    }
    let fixture = Fixture::new();
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 1; done";
    let mut child = fixture.start(&["--", "sh", "-c", script]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(rest, "interrupted\n");
    fixture.assert_nothing_is_left();
}

#[test]
fn the_second_interrupt_ends_a_command_that_does_not_listen() {
    if is_skipped("the_second_interrupt") {
        return;
    }
    let fixture = Fixture::new();
    let mut child = fixture.start(&["--", "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 1; done"]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    fixture.assert_nothing_is_left();
}

#[test]
fn a_killed_run_takes_its_processes_along() {
    if is_skipped("a_killed_run") {
        return;
    }
    let fixture = Fixture::new();
    let mut child = fixture.start(&["--", "sh", "-c", "echo ready; sleep 1000"]);
    assert!(!fixture.processes().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + GONE_MAX;
    while !fixture.processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", fixture.processes());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_panic_of_the_guest_is_told_with_its_message() {
    if is_skipped("a_panic_of_the_guest") {
        return;
    }
    let fixture = Fixture::new();
    let output = fixture.run(&["--", "sh", "-c", "echo c > /proc/sysrq-trigger"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("the guest's kernel panicked"), "{error}");
    assert!(error.contains("Kernel panic - not syncing: sysrq triggered crash"), "{error}");
    fixture.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_cannot_start_is_quoted() {
    if is_skipped("a_daemon_that_cannot_start") {
        return;
    }
    let fixture = Fixture::new();
    let daemon = fixture.share.path().join("daemon");
    fs::write(&daemon, "#!/bin/sh\necho no room for this >&2; exit 3\n").unwrap();
    fs::set_permissions(&daemon, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = fixture.run(&["--daemon", daemon.to_str().unwrap(), "--", "true"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("no room for this") && error.contains("exit status: 3"), "{error}");
    fixture.assert_nothing_is_left();
}

#[test]
fn what_is_missing_is_named() {
    let fixture = Fixture::new();
    for (arguments, reason) in [
        (["--kernel", "/nonexistent/vmlinuz"], "the kernel \"/nonexistent/vmlinuz\" does not exist"),
        (["--share", "/nonexistent/dir"], "the shared directory \"/nonexistent/dir\" does not exist"),
        (["--qemu", "/nonexistent/qemu"], "the emulator \"/nonexistent/qemu\" does not exist"),
        (["--env", "nothing"], "--env nothing: it is not set here; give NAME=VALUE"),
    ] {
        let output = fixture.run(&[&arguments[..], &["--root", "/", "--", "true"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        // Without an emulator on this machine, that is reported first.
        assert!(error.contains(reason) || error.contains("the emulator"), "{error}");
        fixture.assert_nothing_is_left();
    }
}

#[test]
fn a_share_with_a_window_tells_what_went_through_it() {
    if is_skipped("a_share_with_a_window") {
        return;
    }
    // 1. The guest reads two ranges through the window, and changes a byte of the second.
    let fixture = Fixture::new();
    let files = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = files.path().join("file");
    fs::write(&file, vec![b'a'; 4 << 20]).unwrap();
    let share = format!("{}:/window,dax=64M,dax-mode=always", files.path().display());
    let script = "grep -o 'dax=[a-z]*' /proc/mounts && tr -d a < /window/file && \
                  printf b | dd of=/window/file bs=1 seek=3000000 conv=notrunc 2> /dev/null";
    let output = fixture.run(&["--share", &share, "--", "sh", "-c", script]);

    // 2. Nothing was read or written by requests: both ranges were mapped, and the store reached the host's file.
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"dax=always\n"[..]), "{error}");
    assert!(error.contains("DAX /window: 2 ranges (4.00 MiB) mapped, 0 refused"), "{error}");
    assert!(error.ends_with("0 B read and 0 B written by requests\n"), "{error}");
    let content = fs::read(&file).unwrap();
    assert!(content.len() == 4 << 20 && content[3_000_000] == b'b');
    fixture.assert_nothing_is_left();
}

#[test]
fn a_window_that_cannot_be_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let share = |options: &str| format!("{}:/window,{options}", fixture.share.path().display());
    for (arguments, reason) in [
        (vec!["--share", &share("dax=64M,ro")], "a read-only share cannot have a DAX window"),
        (vec!["--share", &share("dax=3M")], "is not a power of two"),
        (vec!["--vmm", "uml", "--share", &share("dax=64M")], "User Mode Linux has no shared-memory regions"),
        (vec!["--root", "/,dax=64M"], "the root is read-only for the guest"),
        (vec!["--qemu", "/bin/true", "--share", &share("dax=64M")], "DAX needs QEMU 11.1 or newer"),
    ] {
        let output = fixture.run(&[&arguments[..], &["--", "true"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert!(error.contains(reason), "{error}");
        fixture.assert_nothing_is_left();
    }
}
