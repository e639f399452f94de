//! Machines of `transom run` that start from a snapshot.
//!
//! Each test has a cache of its own, with links to what the usual one has fetched, so that its first machine boots.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const LIMIT_S: &str = "120";
/// What `-v` says of a machine that was resumed.
const RESUMED: &str = "resume from a snapshot";
/// The warning of a run that fell back.
const FELL_BACK: &str = "the machine was started again, without a snapshot: ";

struct Fixture {
    share: TempDir,
    cache: TempDir,
}

impl Fixture {
    /// Returns a fixture whose cache has all that a run needs, but no snapshot.
    fn new() -> Self {
        let (share, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(share.path().join("file"), "data\n").unwrap();
        let usual = usual_cache();
        fs::create_dir_all(&usual).unwrap();
        for entry in fs::read_dir(usual).unwrap().flatten() {
            if entry.file_name() != "machines" {
                symlink(entry.path(), cache.path().join(entry.file_name())).unwrap();
            }
        }
        Self { share, cache }
    }

    fn start(&self, options: &[&str], script: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["run", "-v", "--no-events", "--accel", "tcg", "--timeout", LIMIT_S]).args(options);
        command.args(["--share", &format!("{}:/share", self.share.path().display()), "--", "sh", "-c", script]);
        command.env("TRANSOM_CACHE", self.cache.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, options: &[&str], script: &str) -> Ended {
        Ended::from(self.start(options, script).wait_with_output().unwrap())
    }

    fn snapshots(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.cache.path().join("machines")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns the processes of QEMU with this fixture's cache in their command lines: the unpacked kernel is there.
    fn machines(&self) -> Vec<PathBuf> {
        let cache = self.cache.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        let has_name = |process: &PathBuf| {
            fs::read(process.join("cmdline")).is_ok_and(|line| {
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("qemu") && line.contains(cache)
            })
        };
        processes.filter(has_name).collect()
    }
}

/// How a run ended.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ended {
    #[track_caller]
    fn expect(&self, stdout: &str, is_resumed: bool, fell_back: bool) {
        assert_eq!((self.status, &*self.stdout), (Some(0), stdout), "{self:?}");
        assert_eq!(self.stderr.contains(RESUMED), is_resumed, "{self:?}");
        assert_eq!(self.stderr.contains(FELL_BACK), fell_back, "{self:?}");
        assert!(!self.stderr.contains("no snapshot"), "{self:?}");
    }
}

fn usual_cache() -> PathBuf {
    let given = std::env::var_os("TRANSOM_CACHE").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"))
}

/// Returns whether guests cannot run here, and prints the reason.
fn is_skipped(test: &str) -> bool {
    let is_found = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_found {
        eprintln!("SKIPPED: {test}: no qemu-system-x86_64 in PATH");
    }
    !is_found
}

#[test]
fn the_second_machine_is_resumed_and_sees_the_share_as_it_is_now() {
    if is_skipped("the_second_machine_is_resumed") {
        return;
    }
    let fixture = Fixture::new();
    fixture.run(&["--cold"], "cat file").expect("data\n", false, false);
    assert_eq!(fixture.snapshots().len(), 0, "no snapshot of a machine that is booted on demand");
    fixture.run(&[], "cat file").expect("data\n", false, false);
    assert_eq!(fixture.snapshots().len(), 1);

    fs::write(fixture.share.path().join("file"), "changed\n").unwrap();
    let other = tempfile::tempdir().unwrap();
    let read_only = format!("{}:/other,ro", other.path().display());
    let script = "cd /share && cat file && echo written > new; ! touch /other/new 2>&1 || echo not read-only";
    let ended = fixture.run(&["--share", &read_only, "--share", &read_only.replace(":/other", ":/more")], script);
    ended.expect("changed\ntouch: /other/new: Read-only file system\n", true, false);
    assert_eq!(fs::read_to_string(fixture.share.path().join("new")).unwrap(), "written\n");

    // Another kind of machine has a snapshot of its own, and --cold uses none.
    fixture.run(&["--memory", "200M"], "cat /share/file").expect("changed\n", false, false);
    assert_eq!(fixture.snapshots().len(), 2);
    fixture.run(&["--cold"], "cat file").expect("changed\n", false, false);
}

/// The emulated processor has random numbers of its own, so that this would mostly pass without the host's seed too.
#[test]
fn machines_of_one_snapshot_have_the_time_and_random_numbers_of_their_own() {
    if is_skipped("machines_of_one_snapshot") {
        return;
    }
    let fixture = Fixture::new();
    let script = "for i in 1 2 3 4; do od -An -tx8 -N16 -v /dev/urandom; done; cat /proc/sys/kernel/random/boot_id; \
                  date -u +%s";
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    fixture.run(&[], "true").expect("", false, false);
    // The clock of the guest in the snapshot stands still; without its host's time it would be behind afterwards.
    thread::sleep(Duration::from_secs(3));
    let before = seconds();
    let ended = [(); 3].map(|()| fixture.start(&[], script)).map(|run| Ended::from(run.wait_with_output().unwrap()));
    let after = seconds();
    let mut drawn = Vec::new();
    for run in &ended {
        assert!(run.status == Some(0) && run.stderr.contains(RESUMED), "{run:?}");
        let mut lines: Vec<_> = run.stdout.lines().collect();
        let time: u64 = lines.pop().unwrap().parse().unwrap();
        assert!((before..=after).contains(&time), "{before} {time} {after}");
        assert_eq!(lines.len(), 5, "{run:?}");
        drawn.extend(lines);
    }
    let count = drawn.len();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), count, "{ended:#?}");
}

#[test]
fn a_snapshot_that_does_not_work_is_told_and_made_anew() {
    if is_skipped("a_snapshot_that_does_not_work") {
        return;
    }
    let fixture = Fixture::new();
    fixture.run(&[], "cat file").expect("data\n", false, false);
    let state = |dir: &Path| fs::read(dir.join("state")).unwrap();
    for what in ["cut off", "of something else", "without memory"] {
        let [dir] = &fixture.snapshots()[..] else { panic!("{what}: {:?}", fixture.snapshots()) };
        match what {
            "cut off" => fs::write(dir.join("state"), &state(dir)[..100_000]).unwrap(),
            "of something else" => fs::write(dir.join("state"), "no state at all").unwrap(),
            _ => {
                let memory = fs::File::options().write(true).open(dir.join("memory")).unwrap();
                let len = memory.metadata().unwrap().len();
                memory.set_len(0).unwrap();
                memory.set_len(len).unwrap();
            }
        }
        fixture.run(&[], "cat file").expect("data\n", false, true);
        assert_eq!(fixture.snapshots().len(), 0, "{what}");
        fixture.run(&[], "cat file").expect("data\n", false, false);
    }
    fixture.run(&[], "cat file").expect("data\n", true, false);
}

#[test]
fn a_terminal_that_is_resized_during_the_first_boot_changes_nothing() {
    if is_skipped("a_terminal_that_is_resized") {
        return;
    }
    let fixture = Fixture::new();
    let mut run = fixture.start(&[], "cat file");
    // From the start of QEMU to the agent's first message; whichever of them come later do not matter either.
    while fixture.machines().is_empty() && run.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..20 {
        let _ = kill_process(Pid::from_child(&run), Signal::WINCH);
        thread::sleep(Duration::from_millis(50));
    }
    Ended::from(run.wait_with_output().unwrap()).expect("data\n", false, false);
    fixture.run(&[], "cat file").expect("data\n", true, false);
}

#[test]
fn a_signal_ends_a_run_whose_emulator_does_not_answer() {
    let fixture = Fixture::new();
    let emulator = fixture.share.path().join("emulator");
    fs::write(&emulator, "#!/bin/sh\ntouch \"${0}-runs\"\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = fixture.start(&["--qemu", emulator.to_str().unwrap()], "cat file");
    while !fixture.share.path().join("emulator-runs").exists() && run.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let ended = Ended::from(run.wait_with_output().unwrap());
    assert_eq!(ended.status, Some(130), "{ended:?}");
    assert_eq!(fixture.snapshots().len(), 0);
}

#[test]
fn a_mistake_of_the_caller_costs_no_snapshot() {
    if is_skipped("a_mistake_of_the_caller") {
        return;
    }
    let fixture = Fixture::new();
    fixture.run(&[], "cat file").expect("data\n", false, false);
    let ended = fixture.run(&["--workdir", "/etc/passwd"], "cat file");
    assert_eq!((ended.status, &*ended.stdout), (Some(125), ""), "{ended:?}");
    assert!(ended.stderr.contains("/etc/passwd") && !ended.stderr.contains(FELL_BACK), "{ended:?}");
    fixture.run(&[], "cat file").expect("data\n", true, false);
}

/// A QEMU that plugs nothing in, and one whose guest does not notice that a device was plugged in.
const WITHOUT_HOT_PLUG: [&str; 2] = [
    "exec qemu-system-x86_64 \"$@\" -global pcie-root-port.hotplug=off",
    "for word; do
         shift
         if [ \"$last\" = -append ]; then word=\"$word pcie_ports=compat\"; fi
         last=$word
         set -- \"$@\" \"$word\"
     done
     exec qemu-system-x86_64 -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off \"$@\"",
];

#[test]
fn machines_without_hot_plug_boot_and_say_so_once() {
    if is_skipped("machines_without_hot_plug") {
        return;
    }
    for script in WITHOUT_HOT_PLUG {
        let fixture = Fixture::new();
        let emulator = fixture.share.path().join("emulator");
        fs::write(&emulator, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).unwrap();
        let options = ["--qemu", emulator.to_str().unwrap()];
        fixture.run(&options, "cat file").expect("data\n", false, true);
        fixture.run(&options, "cat file").expect("data\n", false, false);
    }
}
