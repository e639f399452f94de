//! `transom run --scratch`: what a guest writes outside of its shares is on the host's disk, bounded, and gone at the
//! end.

mod within;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use transom_vm::{build::cached_uml_kernel, packages::Cache};

/// A guest with less memory than it writes, and a directory for its disk.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Option<Self> {
        let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
        let has_qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !has_qemu || !daemon.is_file() {
            println!("SKIPPED: no qemu-system-x86_64 in PATH, or no daemon {daemon:?}");
            return None;
        }
        let fixture = Self { folder: tempfile::tempdir_in("/var/tmp").unwrap() };
        fs::create_dir(fixture.disk_dir()).unwrap();
        Some(fixture)
    }

    fn disk_dir(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn transom(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(arguments).current_dir(self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        if std::env::var_os("TRANSOM_CACHE").is_none() {
            command.env("TRANSOM_CACHE", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"));
        }
        within::output(command.env("TMPDIR", self.disk_dir()).stdin(Stdio::null()))
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        self.transom(&[&["run", "--no-events"], options, &["--", "sh", "-c", script]].concat())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.transom(&["stop", "--all", "--force"]);
    }
}

/// Writes more than the guest's memory, and then more than the disk, in two places that are on it. Everything can be
/// owned by everybody, and be linked.
const FILL: &str = "set -e; echo mine > /tmp/a; ln /tmp/a /tmp/b; chown 7:8 /tmp/a; stat -c %u:%g:%h /tmp/b; \
    mkdir -p /var/x; dd if=/dev/zero of=/var/x/big bs=1M count=200 2>/dev/null; wc -c < /var/x/big; \
    dd if=/dev/zero of=/tmp/more bs=1M count=200 2>&1 | grep -c 'No space left on device'; rm /var/x/big; \
    dd if=/dev/zero of=/tmp/again bs=1M count=100 2>/dev/null; cat /tmp/a; exit 3";
const FILLED: &str = "7:8:2\n209715200\n1\nmine\n";

#[test]
fn a_guest_writes_more_than_its_memory_and_no_more_than_its_disk() {
    let Some(fixture) = Fixture::new() else { return };
    for options in [&["--cold"][..], &["--root", "/"]] {
        let options = [&["-m", "160", "--scratch", "300M", "--json=report"][..], options].concat();
        let output = fixture.run(&options, FILL);
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(3), FILLED), "{output:?}");
        let report: Value = serde_json::from_slice(&fs::read(fixture.folder.path().join("report")).unwrap()).unwrap();
        assert_eq!((&report["status"], &report["error"]), (&3.into(), &Value::Null));
        assert_eq!(fs::read_dir(fixture.disk_dir()).unwrap().count(), 0);
    }
}

#[test]
fn a_machine_that_stays_has_its_disk_without_a_name_and_nothing_outlives_it() {
    let Some(fixture) = Fixture::new() else { return };
    let kept = fixture.transom(&["run", "--no-events", "--keep", "m", "-m", "160", "--scratch", "300M"]);
    assert!(kept.status.success(), "{kept:?}");
    let filled = fixture.transom(&["exec", "m", "--", "sh", "-c", FILL]);
    assert_eq!((filled.status.code(), &*String::from_utf8_lossy(&filled.stdout)), (Some(3), FILLED), "{filled:?}");
    let again = fixture.transom(&["exec", "m", "--", "cat", "/tmp/a"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "mine\n", "{again:?}");
    assert_eq!(fs::read_dir(fixture.disk_dir()).unwrap().count(), 0);

    let listed = fixture.transom(&["ps", "--json"]);
    let machines: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let keeper = Pid::from_raw(machines[0]["pid"].as_i64().unwrap() as i32).unwrap();
    let disks = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let fds = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok()).flatten().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).filter(|path| path.starts_with(fixture.disk_dir())).count()
    };
    assert_ne!(disks(), 0);
    kill_process(keeper, Signal::KILL).unwrap();
    within::until(|| format!("{} descriptors of the disk", disks()), || (disks() == 0).then_some(()));
}

#[test]
fn a_disk_that_cannot_be_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    for (size, told) in [("1M", "it has 16 MiB to 8 TiB"), ("7T", "MiB are free in"), ("16X", "unknown unit")] {
        let output = fixture.run(&["--scratch", size], "true");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
}

#[test]
fn a_guest_of_user_mode_linux_has_a_disk() {
    let Some(fixture) = Fixture::new() else { return };
    let cache = std::env::var_os("TRANSOM_CACHE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cache"), PathBuf::from);
    let Some(kernel) = cached_uml_kernel(&Cache::at(cache)) else {
        return println!("SKIPPED: no kernel of User Mode Linux in the cache: scripts/prepare builds it");
    };
    let kernel = kernel.to_str().unwrap();
    let output = fixture.run(&["--vmm", "uml", "--kernel", kernel, "-m", "160", "--scratch", "300M"], FILL);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(3), FILLED), "{output:?}");
}
