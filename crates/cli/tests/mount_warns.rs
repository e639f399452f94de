//! The warnings of `transom mount` about daemon options that are dangerous together.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::geteuid;
use tempfile::TempDir;

/// Returns the daemon that was built with this test, or the reason why nothing can be mounted here.
fn daemon() -> Result<PathBuf, String> {
    let daemon = Path::new(env!("CARGO_BIN_EXE_transom")).with_file_name("transomd");
    if !geteuid().is_root() {
        Err("mount(2) takes root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Err("there is no /dev/fuse".to_owned())
    } else if !daemon.is_file() {
        Err(format!("no daemon {daemon:?}; build transomd"))
    } else {
        Ok(daemon)
    }
}

/// A share and its mount point, unmounted when the test ends, even by a panic.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        ["share", "mnt"].iter().for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Mounts in the background and unmounts; returns what was written to standard error.
    fn mount(&self, daemon: &Path, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["mount", "-b", "--daemon"]).arg(daemon).arg("--shared-dir").arg(self.path("share"));
        let output = command.arg(self.path("mnt")).arg("--").args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let unmounted = Command::new("umount").arg(self.path("mnt")).output().unwrap();
        assert!(unmounted.status.success(), "{}", text(&unmounted));
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Fails if the test has already unmounted it.
        let _ = Command::new("umount").arg("-l").arg(self.path("mnt")).output();
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn locks_between_mounts_and_a_cache_with_time_outs_are_warned_of_in_one_line() {
    let daemon = match daemon() {
        Ok(daemon) => daemon,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    let fixture = Fixture::new();
    for args in [&["--posix-lock"][..], &["--flock", "--cache=always"]] {
        let stderr = fixture.mount(&daemon, args);
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.contains(args[0]) && stderr.contains("--cache=never"), "{args:?}: {stderr}");
    }
    for args in [&[][..], &["--cache=always"], &["--posix-lock", "--cache=never"]] {
        assert_eq!(fixture.mount(&daemon, args), "", "{args:?}");
    }
}
