//! `transom mount --reconnect` in the background, with relative paths.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Well above the time that a new daemon takes to start.
const LONG: Duration = Duration::from_secs(60);
/// Wraps the daemon, and appends its process id to a file with a relative path.
const STARTER: &str = "#!/bin/sh\necho $$ >>pids\nexec \"$REAL_TRANSOMD\" \"$@\"\n";

fn daemon() -> Option<PathBuf> {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    let reason = if !geteuid().is_root() {
        "mount(2) takes root".to_owned()
    } else if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse".to_owned()
    } else if !daemon.is_file() {
        format!("no daemon {daemon:?}; build transomd")
    } else {
        return Some(daemon);
    };
    println!("SKIPPED: {reason}");
    None
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A mount point, unmounted when the test ends, even by a panic.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Fails if the test has already unmounted it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_mount_in_the_background_with_relative_paths_gets_another_daemon() {
    let Some(daemon) = daemon() else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["share", "mnt", "bin"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("share/hello"), "hello").unwrap();
    fs::write(at("bin/transomd"), STARTER).unwrap();
    fs::set_permissions(at("bin/transomd"), fs::Permissions::from_mode(0o755)).unwrap();
    // 1. The share is mounted when the command returns.
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(["mount", "-b", "--reconnect", "--daemon", "bin/transomd", "--shared-dir", "share", "mnt"]);
    let mounted = Mounted(at("mnt"));
    let output = command.current_dir(dir.path()).env("REAL_TRANSOMD", daemon).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(at("mnt/hello")).unwrap(), "hello");
    // 2. The daemon is killed; its successor finds the executable, the shared directory and the path of the file.
    let pids = || fs::read_to_string(at("pids")).unwrap().lines().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>();
    let first = pids();
    assert_eq!(first.len(), 1);
    kill_process(Pid::from_raw(first[0]).unwrap(), Signal::KILL).unwrap();
    let read = Command::new("timeout").args(["60", "cat"]).arg(at("mnt/hello")).output().unwrap();
    assert_eq!((read.status.success(), text(&read).as_str()), (true, "hello"));
    let begun = Instant::now();
    while pids().len() < 2 {
        assert!(begun.elapsed() < LONG, "no other daemon was started");
        thread::yield_now();
    }
    let output = Command::new("umount").arg(at("mnt")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(!fs::exists(at("mnt/hello")).unwrap());
    drop(mounted);
}

#[test]
fn a_directory_shared_at_its_own_place_is_refused_with_what_to_do() {
    let Some(_) = daemon() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    let output =
        command.args(["mount", "--reconnect", "--shared-dir", ".", "."]).current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("choose a mount point"), "{}", text(&output));
}
