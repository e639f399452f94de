//! However a mount ends, it says why in one line on standard error.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// `transom mount` in the foreground.
struct Mounted {
    dir: TempDir,
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Mounted {
    /// Prints SKIPPED and returns `None` if nothing can be mounted here.
    fn start() -> Option<Self> {
        let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
        let reason = if !geteuid().is_root() {
            "mount(2) takes root"
        } else if !Path::new("/dev/fuse").exists() {
            "there is no /dev/fuse"
        } else if !daemon.is_file() {
            "transomd is not built"
        } else {
            return Some(Self::start_with(&daemon));
        };
        println!("SKIPPED: {reason}");
        None
    }

    fn start_with(daemon: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        ["share", "mnt"].iter().for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
        fs::write(dir.path().join("daemon"), "#!/bin/sh\necho $$ >\"$PID_FILE\"\nexec \"$REAL_DAEMON\" \"$@\"\n")
            .unwrap();
        fs::set_permissions(dir.path().join("daemon"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["mount", "--daemon"]).arg(dir.path().join("daemon"));
        command.env("REAL_DAEMON", daemon).env("PID_FILE", dir.path().join("pid"));
        command.arg("--shared-dir").arg(dir.path().join("share")).arg(dir.path().join("mnt"));
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.starts_with("transom: mounted at "), "{line}");
        Self { dir, process, stderr }
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Aborts the connection as an administrator would. Prints SKIPPED and returns `None` if the kernel has no FUSE
    /// control file system.
    fn abort(&self) -> Option<()> {
        // Mounted here because /sys/fs/fuse/connections may not be.
        let control = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "fusectl", "fusectl"]).arg(control.path()).output().unwrap();
        if !mounted.status.success() {
            println!("SKIPPED: fusectl is not available: {}", String::from_utf8_lossy(&mounted.stderr));
            return None;
        }
        // A connection is named after the minor number of its device.
        let number = rustix::fs::minor(fs::metadata(self.at()).unwrap().dev());
        let aborted = fs::write(control.path().join(number.to_string()).join("abort"), "1");
        assert!(Command::new("umount").arg(control.path()).status().unwrap().success());
        aborted.unwrap();
        Some(())
    }

    fn kill_daemon(&self) {
        let pid = fs::read_to_string(self.dir.path().join("pid")).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    fn umount(&self, args: &[&str]) -> bool {
        Command::new("umount").args(args).arg(self.at()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// Waits for the process to end; returns its exit status and the rest of standard error.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        (self.process.wait().unwrap().code(), text)
    }

    /// Checks that the process ends with `status` and prints one line that contains all of `words`.
    fn check(mut self, status: i32, words: &[&str]) {
        let (code, text) = self.end();
        assert_eq!(code, Some(status), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        for word in words.iter().chain(&["transom: ", "/mnt"]) {
            assert!(text.contains(word), "no {word:?} in {text:?}");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.umount(&["-l"]);
    }
}

#[test]
fn a_connection_that_is_aborted_from_outside_is_told_from_unmounting() {
    let Some(mounted) = Mounted::start() else { return };
    let Some(()) = mounted.abort() else { return };
    mounted.check(1, &["was aborted by", "/sys/fs/fuse/connections", "umount"]);
}

#[test]
fn a_forced_umount_of_a_busy_mount_is_told_from_unmounting() {
    let Some(mounted) = Mounted::start() else { return };
    let open = fs::File::open(mounted.at()).unwrap();
    assert!(!mounted.umount(&["-f"]), "it was busy");
    mounted.check(1, &["was aborted by", "`umount -f`"]);
    drop(open);
}

#[test]
fn unmounting_is_said_to_be_that() {
    let Some(mounted) = Mounted::start() else { return };
    assert!(mounted.umount(&[]));
    mounted.check(0, &["has ended: it was unmounted\n"]);
}

#[test]
fn a_signal_is_named() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT"), (Signal::HUP, "SIGHUP")] {
        let Some(mounted) = Mounted::start() else { return };
        kill_process(Pid::from_child(&mounted.process), signal).unwrap();
        mounted.check(0, &["has ended: it was unmounted after", name]);
    }
}

#[test]
fn a_daemon_that_dies_is_said_to_be_gone() {
    let Some(mounted) = Mounted::start() else { return };
    mounted.kill_daemon();
    mounted.check(1, &["the daemon is gone", "fails from now on"]);
}
