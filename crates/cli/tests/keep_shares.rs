//! `transom share`: directories that a machine gets and loses while it runs.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A directory with `first`, `second` and `third` to share, in which the machine `m` is started.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn start(options: &[&str]) -> Self {
        let fixture = Self { folder: tempfile::tempdir_in("/var/tmp").unwrap() };
        for name in ["first", "second", "third"] {
            fs::create_dir_all(fixture.path(name).join("sub")).unwrap();
            fs::write(fixture.path(name).join("name"), format!("{name}\n")).unwrap();
        }
        let started = fixture.transom(&[&["run", "--keep", "m", "--no-events", "--share", "first"], options].concat());
        assert!(started.status.success(), "{started:?}");
        fixture
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn transom(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(arguments).current_dir(self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        if std::env::var_os("TRANSOM_CACHE").is_none() {
            command.env("TRANSOM_CACHE", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"));
        }
        command.stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.transom(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn is_refused(&self, arguments: &[&str], text: &str) {
        let output = self.transom(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(text), "{error}");
    }

    #[track_caller]
    fn sh(&self, script: &str) -> String {
        self.succeeds(&["exec", "m", "--", "sh", "-c", script])
    }

    fn guests(&self) -> Vec<String> {
        let machines: Value = serde_json::from_str(&self.succeeds(&["ps", "--json"])).unwrap();
        let shares = machines[0]["shares"].as_array().unwrap().iter();
        shares.map(|share| share["guest"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns how many daemons serve a directory.
    fn daemons(&self, name: &str) -> usize {
        let path = self.path(name);
        let lines = fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines
            .filter(|line| line.split(|&byte| byte == 0).any(|word| word == path.as_os_str().as_encoded_bytes()))
            .count()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.transom(&["stop", "--all", "--force"]);
    }
}

fn is_skipped(test: &str) -> bool {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_qemu || !daemon.is_file() {
        eprintln!("SKIPPED: {test}: no qemu-system-x86_64 in PATH, or no daemon {daemon:?}");
    }
    !has_qemu || !daemon.is_file()
}

/// Adds, uses and removes shares; ports are used again.
fn shares_come_and_go(fixture: &Fixture) {
    fixture.succeeds(&["share", "add", "m", "second"]);
    fixture.succeeds(&["share", "add", "m", "third:/data,ro"]);
    assert_eq!(fixture.sh("cat /mnt/second/name /data/name; echo new > /mnt/second/made"), "second\nthird\n");
    assert_eq!(fs::read_to_string(fixture.path("second/made")).unwrap(), "new\n");
    assert_eq!(fixture.sh("echo x 2>/dev/null > /data/made || echo refused"), "refused\n");
    assert_eq!(fixture.guests(), ["/mnt/first", "/mnt/second", "/data"]);

    fixture.is_refused(&["share", "add", "m", "first:/mnt/second"], "would hide");
    fixture.is_refused(&["share", "add", "m", "first:/mnt"], "would hide");
    fixture.is_refused(&["share", "add", "m", "absent"], "does not exist");
    fixture.is_refused(&["share", "add", "m", "third:/x,overlay"], "`transom run --keep`");
    fixture.is_refused(&["share", "remove", "m", "/mnt/first"], "was there at its start");
    fixture.is_refused(&["share", "remove", "m", "/nowhere"], "no share is mounted");

    // What uses it holds it.
    fixture.sh("(cd /mnt/second; exec sleep 1000) >/dev/null 2>&1 & echo $! > /tmp/pid");
    fixture.is_refused(&["share", "remove", "m", "/mnt/second"], "is in use");
    assert_eq!(fixture.sh("kill $(cat /tmp/pid); sleep 0.1; cat /mnt/second/name"), "second\n");
    fixture.succeeds(&["share", "remove", "m", "/mnt/second/"]);
    assert_eq!(fixture.sh("ls /mnt/second; cat /data/name"), "third\n");
    assert_eq!(fixture.guests(), ["/mnt/first", "/data"]);
    for _ in 0..2 {
        fixture.succeeds(&["share", "add", "m", "second:/again"]);
        assert_eq!(fixture.sh("cat /again/made"), "new\n");
        fixture.succeeds(&["share", "remove", "m", "/again"]);
    }
    let stopped = fixture.transom(&["stop", "m"]);
    assert!(stopped.status.success() && stopped.stderr.is_empty(), "{stopped:?}");
    assert_eq!((fixture.daemons("second"), fixture.daemons("third")), (0, 0));
}

#[test]
fn shares_come_and_go_while_a_machine_runs() {
    if is_skipped("shares_come_and_go_while_a_machine_runs") {
        return;
    }
    shares_come_and_go(&Fixture::start(&[]));
}

#[test]
fn shares_come_and_go_in_a_machine_that_booted_with_its_devices() {
    if is_skipped("shares_come_and_go_in_a_machine_that_booted") {
        return;
    }
    shares_come_and_go(&Fixture::start(&["--cold"]));
}

#[test]
fn a_machine_has_room_for_six_shares() {
    if is_skipped("a_machine_has_room_for_six_shares") {
        return;
    }
    let fixture = Fixture::start(&["--hide", "first/sub", "--rate", "100M"]);
    for number in 1..6 {
        fixture.succeeds(&["share", "add", "m", &format!("second:/mnt/{number}")]);
    }
    fixture.is_refused(&["share", "add", "m", "third"], "room for 6 shares");
    fixture.succeeds(&["share", "remove", "m", "/mnt/3"]);
    // The options of the machine apply.
    fixture.succeeds(&["share", "add", "m", "first:/mnt/hiding"]);
    assert_eq!(fixture.sh("ls /mnt/hiding; cat /mnt/5/name"), "name\nsecond\n");
}
