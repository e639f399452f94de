//! A directory is mounted on a directory and a file on a file; everything else is refused, and nothing stays mounted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::geteuid;
use tempfile::TempDir;

/// Limit for a daemon to listen, generous on a busy machine.
const LISTENS_MAX: Duration = Duration::from_secs(60);

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

/// A directory and a file to share, and one of each to mount at.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        ["dir", "on-dir"].iter().for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
        ["file", "dir/name"].iter().for_each(|name| fs::write(dir.path().join(name), "shared").unwrap());
        fs::write(dir.path().join("on-file"), "beneath").unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn mount(&self, source: [&str; 2], mountpoint: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["mount", "-b", source[0]]).arg(self.path(source[1])).arg(self.path(mountpoint));
        command.output().unwrap()
    }

    #[track_caller]
    fn is_refused(&self, source: [&str; 2], mountpoint: &str, text: &str) {
        let output = self.mount(source, mountpoint);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{source:?} on {mountpoint}: {error}");
        assert!(error.contains(text), "{source:?} on {mountpoint}: {error}");
        assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(self.0.path().to_str().unwrap()));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for name in ["on-dir", "on-file"] {
            // Fails where nothing is mounted.
            let _ = Command::new("umount").arg("-l").arg(self.path(name)).output();
        }
    }
}

#[test]
fn a_share_of_the_other_kind_is_refused_and_nothing_stays_mounted() {
    let daemon = match daemon() {
        Ok(daemon) => daemon,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    // 1. With a daemon that is started for the mount.
    let fixture = Fixture::new();
    fixture.is_refused(["--shared-dir", "dir"], "on-file", "is a directory, and");
    fixture.is_refused(["--shared-dir", "file"], "on-dir", "is a file, and");

    // 2. With one that runs already, which only the daemon knows the share of.
    for (shared, mountpoint, text) in [("dir", "on-file", "is a directory, and"), ("file", "on-dir", "is a file, and")]
    {
        let socket = fixture.path("socket");
        let mut command = Command::new(&daemon);
        command.args(["--sandbox", "none", "--socket-path"]).arg(&socket);
        command.arg("--shared-dir").arg(fixture.path(shared)).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + LISTENS_MAX;
        while !socket.exists() {
            assert!(Instant::now() < deadline, "the daemon does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        fixture.is_refused(["--socket", "socket"], mountpoint, text);
        // It ends with its connection, if it has had one.
        let _ = child.kill();
        child.wait().unwrap();
        let _ = fs::remove_file(&socket);
    }
}

#[test]
fn a_file_is_mounted_on_a_file() {
    if let Err(reason) = daemon() {
        println!("SKIPPED: {reason}");
        return;
    }
    let fixture = Fixture::new();
    let output = fixture.mount(["--shared-dir", "file"], "on-file");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(fixture.path("on-file")).unwrap(), "shared");
    let unmounted = Command::new("umount").arg(fixture.path("on-file")).status().unwrap();
    assert!(unmounted.success());
}

#[test]
fn fs_takes_no_file_for_a_share() {
    let fixture = Fixture::new();
    for command in ["ls", "df", "tree"] {
        let mut transom = Command::new(env!("CARGO_BIN_EXE_transom"));
        let output = transom.args(["fs", "-d"]).arg(fixture.path("file")).arg(command).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {error}");
        assert!(error.contains("is a file: share the directory that contains it"), "{command}: {error}");
    }
}
