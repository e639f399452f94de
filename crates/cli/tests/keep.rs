//! Machines that stay, with guests under QEMU: `transom run --keep`, `exec`, `ps`, `stop` and `cp`.
//!
//! Every test has a runtime directory of its own, so that its machines are the only ones it sees. What it says and how
//! it ends is compared with the manual.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Well above what anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory to share, one for the files of the machines, and the machine `m`.
struct Fixture {
    share: TempDir,
    run: TempDir,
}

impl Fixture {
    /// Returns a fixture with a machine, or prints why it cannot be.
    fn start(options: &[&str]) -> Option<Self> {
        if let Some(why) = missing() {
            println!("SKIPPED: {why}");
            return None;
        }
        let fixture = Self { share: tempfile::tempdir().unwrap(), run: tempfile::tempdir().unwrap() };
        let started = fixture.keep(options, &[]);
        assert!(started.status.success(), "{started:?}");
        assert!(text(&started.stderr).contains("transom: the machine m is running"), "{started:?}");
        Some(fixture)
    }

    fn keep(&self, options: &[&str], command: &[&str]) -> Output {
        let mut keep = self.command(&["run", "--keep", "m", "--no-events", "--accel", "tcg"]);
        keep.arg("--share").arg(format!("{}:/share{}", self.share.path().display(), options.concat()));
        keep.arg("--").args(command).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.run.path())
            .env("XDG_STATE_HOME", self.run.path().join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn transom(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command in the machine.
    fn exec(&self, arguments: &[&str]) -> Output {
        self.transom(&[&["exec", "m", "--"], arguments].concat())
    }

    /// Runs a script in the machine, and returns its output.
    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let output = self.exec(&["sh", "-c", script]);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }

    fn machines(&self) -> Vec<Value> {
        let output = self.transom(&["ps", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the processes of this fixture's machines except callers: its directories are in their command lines.
    fn processes(&self) -> Vec<String> {
        let names = [&self.run, &self.share].map(|dir| dir.path().to_str().unwrap());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines
            .map(|line| text(&line).replace('\0', " "))
            .filter(|line| names.iter().any(|name| line.contains(name)))
            .collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.transom(&["stop", "--all", "--force"]);
    }
}

/// Returns why guests cannot run here.
fn missing() -> Option<String> {
    let daemon = std::env::var_os("TRANSOM_DAEMON")
        .map_or_else(|| Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd"), PathBuf::from);
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    match (has_qemu, daemon.is_file()) {
        (false, _) => Some("qemu-system-x86_64 is not installed".into()),
        (_, false) => Some(format!("no daemon at {}: cargo build -p transom-daemon", daemon.display())),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what} has not happened");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Reads a line of a child's output.
fn line(child: &mut Child) -> String {
    let stdout = child.stdout.as_mut().unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while stdout.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
        line.push(byte[0]);
    }
    text(&line)
}

#[test]
fn commands_run_one_after_the_other_and_at_once() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    fs::write(fixture.share.path().join("file"), "data\n").unwrap();
    assert_eq!(fixture.sh("cat file; echo made > /tmp/made; pwd"), "data\n/share\n");
    assert_eq!(fixture.sh("cat /tmp/made"), "made\n");

    for (command, status, told) in [
        (&["sh", "-c", "exit 3"][..], 3, ""),
        (&["sh", "-c", "kill -9 $$"], 137, ""),
        (&["no-such-program"], 127, "transom: no-such-program: "),
        (&["/share"], 126, "transom: /share: "),
    ] {
        let output = fixture.exec(command);
        assert_eq!(output.status.code(), Some(status), "{command:?} {output:?}");
        assert!(text(&output.stderr).starts_with(told), "{output:?}");
    }
    let words = ["exec", "-w", "/tmp/x", "--user", "7:8", "-e", "A=b c", "m", "--"];
    let output = fixture.transom(&[&words[..], &["sh", "-c", "pwd; id -u; id -g; echo $A"]].concat());
    assert_eq!(text(&output.stdout), "/tmp/x\n7\n8\nb c\n", "{output:?}");

    // One whose output nobody reads holds up no other, nor those whose input does not end.
    let mut stalled = fixture.command(&["exec", "m", "--", "sh", "-c", "echo go; exec cat /dev/zero"]).spawn().unwrap();
    assert_eq!(line(&mut stalled), "go");
    let mut waiting = fixture.command(&["exec", "m", "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    for number in 0..3 {
        assert_eq!(fixture.sh(&format!("echo {number}")), format!("{number}\n"));
    }
    let [machine] = &fixture.machines()[..] else { panic!("not one machine") };
    assert_eq!(
        (&machine["name"], &machine["state"], &machine["shares"][0]["mode"]),
        (&"m".into(), &"running".into(), &"rw".into())
    );
    let commands = machine["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 2, "{machine}");
    waiting.stdin.take().unwrap().write_all(b"last").unwrap();
    assert_eq!(text(&waiting.wait_with_output().unwrap().stdout), "last");

    // A caller that dies takes its command along, and nothing else.
    stalled.kill().unwrap();
    stalled.wait().unwrap();
    until("the end of the command", || fixture.machines()[0]["commands"] == serde_json::json!([]));
    until("the end of the process", || !fixture.sh("ps").contains("cat /dev/zero"));
}

#[test]
fn bytes_pass_unchanged_and_what_is_left_running_holds_up_nothing() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let bytes: Vec<u8> =
        (0..3_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut child = fixture.command(&["exec", "m", "--", "tee", "/dev/stderr"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn({
        let bytes = bytes.clone();
        move || stdin.write_all(&bytes).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!((output.stdout == bytes, output.stderr == bytes), (true, true), "{} bytes", output.stdout.len());

    let begun = fixture.sh("sleep 1000 & (while :; do echo more; done) & echo started");
    assert!(begun.contains("started\n"), "{begun}");
    assert!(fixture.sh("ps").contains("sleep 1000"));
    // The reader of a pipe that ends early ends the command.
    let mut child = fixture.command(&["exec", "m", "yes"]).spawn().unwrap();
    assert_eq!(line(&mut child), "y");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}

#[test]
fn signals_and_times_end_the_command_and_not_the_machine() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let start = |script: &str| {
        let mut child = fixture.command(&["exec", "m", "--", "sh", "-c", script]).spawn().unwrap();
        assert_eq!(line(&mut child), "ready");
        child
    };
    let pid = |child: &Child| Pid::from_raw(child.id() as i32).unwrap();
    let mut handled = start("trap 'exit 5' INT; echo ready; sleep 1000 & wait");
    kill_process(pid(&handled), Signal::INT).unwrap();
    assert_eq!(handled.wait().unwrap().code(), Some(5));
    let mut ignored = start("trap '' INT TERM; echo ready; while :; do sleep 1; done");
    kill_process(pid(&ignored), Signal::INT).unwrap();
    assert_eq!(ignored.wait().unwrap().code(), Some(130));
    let timed_out = fixture.transom(&["exec", "--timeout", "0.5", "m", "--", "sleep", "1000"]);
    assert_eq!(timed_out.status.code(), Some(124), "{timed_out:?}");
    until("the end of the processes", || !fixture.sh("ps").contains("sleep 1\n"));
    assert_eq!(fixture.sh("echo alive"), "alive\n");
}

#[test]
fn a_terminal_has_a_size_and_ends_with_its_command() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: script (util-linux) is not installed");
        return;
    }
    let program = env!("CARGO_BIN_EXE_transom");
    let inner = "sleep 1000 & test -t 0 && test -t 2 && stty size && exit 9";
    let words = format!("stty rows 33 cols 44; {program} exec -t m -- sh -c '{inner}'");
    let output = Command::new("script")
        .args(["-qec", &words, "/dev/null"])
        .env("XDG_RUNTIME_DIR", fixture.run.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains("33 44\r\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(9), "{output:?}");
}

#[test]
fn a_machine_that_is_stopped_has_written_everything_and_keeps_its_overlay() {
    let Some(fixture) = Fixture::start(&[",overlay"]) else { return };
    fixture.sh("echo new > file; (trap 'echo late > late; exit' TERM; while :; do sleep 1; done) >/dev/null 2>&1 &");
    let again = fixture.keep(&[], &["true"]);
    assert_eq!(again.status.code(), Some(125), "{again:?}");
    assert!(text(&again.stderr).contains("there is a machine m already: `transom stop m`"), "{again:?}");

    let stopped = fixture.transom(&["stop", "m"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(text(&stopped.stderr).contains("2 files changed in"), "{stopped:?}");
    assert_eq!(fs::read_dir(fixture.share.path()).unwrap().count(), 0);
    let share = fixture.share.path().to_str().unwrap();
    assert!(fixture.transom(&["commit", share]).status.success());
    assert_eq!(fs::read(fixture.share.path().join("file")).unwrap(), b"new\n");
    assert_eq!(fs::read(fixture.share.path().join("late")).unwrap(), b"late\n");
    assert_eq!(fixture.machines(), Vec::<Value>::new());
    until("the end of all processes", || fixture.processes().is_empty());
    assert_eq!(fs::read_dir(fixture.run.path().join("transom")).unwrap().count(), 0);
    let output = fixture.exec(&["true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).starts_with("transom: there is no machine m: "), "{output:?}");
}

#[test]
fn a_keeper_that_is_killed_leaves_no_process_and_no_name() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let keeper = fixture.machines()[0]["pid"].as_i64().unwrap();
    let mut running = fixture.command(&["exec", "m", "--", "sh", "-c", "echo ready; sleep 1000"]).spawn().unwrap();
    assert_eq!(line(&mut running), "ready");
    assert!(!fixture.processes().is_empty());
    kill_process(Pid::from_raw(keeper as i32).unwrap(), Signal::KILL).unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("the machine m has ended, and the command with it"), "{output:?}");
    until("the end of all processes", || fixture.processes().is_empty());
    // The command comes from the machine that takes the name, and ends as it does.
    let again = fixture.keep(&[], &["sh", "-c", "echo again; exit 4"]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(4), "again\n".into()), "{again:?}");
    assert!(text(&again.stderr).contains("the machine m has ended"), "{again:?}");
}

#[test]
fn a_machine_that_ends_by_itself_is_told_once() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    // Process 1 is not killed by this, but a kernel that panics ends the machine.
    let output = fixture.exec(&["sh", "-c", "echo c > /proc/sysrq-trigger; sleep 1000"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    until("the end of the keeper", || fixture.processes().is_empty());
    let told = fixture.transom(&["stop", "--all"]);
    assert!(told.status.success(), "{told:?}");
    assert!(text(&told.stderr).contains("the machine m has ended:\ntransom: the guest's kernel panicked"), "{told:?}");
    assert_eq!(text(&fixture.transom(&["ps"]).stderr), "");
}

#[test]
fn files_and_trees_are_copied_with_their_modes() {
    let Some(fixture) = Fixture::start(&[]) else { return };
    let tree = fixture.run.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/script"), [7; 100_000]).unwrap();
    fs::set_permissions(tree.join("sub/script"), fs::Permissions::from_mode(0o751)).unwrap();
    let (tree, back) = (tree.to_str().unwrap(), fixture.run.path().join("back"));
    for (source, to) in [(tree, "m:/tmp"), ("m:/tmp/tree", back.to_str().unwrap())] {
        let output = fixture.transom(&["cp", source, to]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
    let script = back.join("sub/script");
    assert_eq!(fs::read(&script).unwrap(), [7; 100_000]);
    assert_eq!(fs::metadata(script).unwrap().permissions().mode() & 0o7777, 0o751);

    for (source, to, told) in [
        ("m:/no/file", "x", "in the guest: /no/file: No such file"),
        (tree, "m:/no/directory/x", "in the guest: /no/directory is not a directory"),
        ("/no/file", "m:/tmp", "cannot copy /no/file: No such file"),
        ("m:/tmp/tree", "/no/directory/x", "/no/directory is not a directory"),
        ("m:/", "x", "name what is copied"),
        ("a", "b", "one of them is NAME:PATH"),
        ("n:/a", "b", "there is no machine n"),
    ] {
        let output = fixture.transom(&["cp", source, to]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(told), "{output:?}");
    }
}

#[test]
fn options_without_a_meaning_are_refused_with_the_reason() {
    let fixture = Fixture { share: tempfile::tempdir().unwrap(), run: tempfile::tempdir().unwrap() };
    for (options, told) in [
        (&["--timeout", "3"][..], "--keep and --timeout exclude each other"),
        (&["--json"], "--keep and --json exclude each other"),
        (&["--commit-on-success"], "--keep and --commit-on-success exclude each other"),
        (&["--vmm", "uml"], "--keep needs --vmm qemu"),
    ] {
        let output = fixture.transom(&[&["run", "--keep", "m"], options, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains(told), "{output:?}");
    }
    let output = fixture.transom(&["run", "--keep", "../m", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("\"../m\" is no name of a machine"), "{output:?}");
    assert_eq!(text(&fixture.transom(&["ps", "--json"]).stdout), "[]\n");
}

#[test]
fn another_user_cannot_reach_a_machine() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can start a process of another user");
        return;
    }
    let Some(fixture) = Fixture::start(&[]) else { return };
    fs::set_permissions(fixture.run.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = fixture.run.path().join("transom/m.socket");
    assert!(socket.exists());
    // A program that everybody can reach.
    let program = fixture.run.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_transom"), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program)
        .args(["exec", "m", "true"])
        .env("XDG_RUNTIME_DIR", fixture.run.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output.stderr).contains("is not a directory that only this user can access"), "{output:?}");
}
