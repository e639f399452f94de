//! Mounts that reconnect and daemons that can be killed, for the tests of both.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount as unmount_place},
    process::{Pid, Signal, kill_process_group},
};
use tempfile::TempDir;
use transom_mount::{Mount, Options};
use transom_user::{daemon::Program, share::Share};

use crate::{common, unmount};

/// Far above what a new daemon takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A mount that reconnects, of a directory on the disk.
pub(crate) struct Lasting {
    pub(crate) mount: Mount,
    pub(crate) host: TempDir,
    pub(crate) at: TempDir,
}

pub(crate) fn options() -> Options {
    Options { reconnect: Some(LONG), ..Options::default() }
}

impl Lasting {
    pub(crate) fn start(program: &Program) -> Self {
        let (host, at) = (common::on_disk(), tempfile::tempdir().unwrap());
        let share = Share::builder().shared_dir(host.path()).daemon(program.clone());
        let mount = Mount::start(share, at.path(), options()).unwrap();
        Self { mount, host, at }
    }

    /// With each daemon that there is.
    pub(crate) fn each(mut test: impl FnMut(&mut Self)) {
        for mut program in common::daemons() {
            if program.path.ends_with("transomd") {
                program.args = options().daemon_args();
            }
            let mut lasting = Self::start(&program);
            test(&mut lasting);
            unmount(&mut lasting.mount);
        }
    }

    pub(crate) fn host(&self, name: &str) -> PathBuf {
        self.host.path().join(name)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// Kills the daemon, and returns when there is another.
    pub(crate) fn kill(&self) {
        kill(&self.mount);
    }
}

pub(crate) fn kill(mount: &Mount) {
    let begun = Instant::now();
    let pid = loop {
        if let Some(pid) = mount.daemon_id() {
            break pid;
        }
        assert!(begun.elapsed() < LONG, "no daemon has come");
        thread::yield_now();
    };
    assert!(pid > 1);
    // It may have gone by itself.
    let _ = kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL);
    // Until there is another: what starts it closes our files on the way, and a write of ours would keep it from that.
    while mount.daemon_id().is_none_or(|now| now == pid) {
        assert!(begun.elapsed() < LONG, "no other has come");
        thread::yield_now();
    }
}

/// How many requests of a mount the kernel waits for: by fusectl, mounted at a place of its own.
pub(crate) struct Waiting {
    path: PathBuf,
    control: TempDir,
}

impl Waiting {
    /// Of a mount whose daemon answers. `None`, and says so, where there is no fusectl.
    pub(crate) fn of(at: &Path) -> Option<Self> {
        let connection = rustix::fs::minor(fs::metadata(at).unwrap().dev());
        let control = tempfile::tempdir().unwrap();
        if let Err(errno) = mount("fusectl", control.path(), "fusectl", MountFlags::empty(), None) {
            println!("SKIPPED: waiting for requests: fusectl: {errno}");
            return None;
        }
        Some(Self { path: control.path().join(connection.to_string()).join("waiting"), control })
    }

    /// Blocks until there are so many.
    pub(crate) fn until(&self, count: u32) {
        let begun = Instant::now();
        while fs::read_to_string(&self.path).unwrap().trim().parse::<u32>().unwrap() < count {
            assert!(begun.elapsed() < LONG, "there are fewer than {count}");
            thread::yield_now();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        unmount_place(self.control.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// A transomd that listens.
pub(crate) struct Listening(pub(crate) std::process::Child);

impl Listening {
    pub(crate) fn start(shared: &Path, socket: &Path) -> Self {
        Self::start_with(shared, socket, &[])
    }

    pub(crate) fn start_with(shared: &Path, socket: &Path, args: &[&str]) -> Self {
        let mut command = std::process::Command::new(common::transomd().path);
        command.arg("--socket-path").arg(socket).arg("--shared-dir").arg(shared).arg("--birth-times").args(args);
        command.stdout(std::process::Stdio::piped());
        let begun = Instant::now();
        let _ = fs::remove_file(socket);
        let mut child = Self(command.spawn().unwrap());
        while !socket.exists() {
            assert!(begun.elapsed() < LONG, "it does not listen");
            if child.0.try_wait().unwrap().is_some() {
                // The one before, which was killed, is not quite gone.
                child = Self(command.spawn().unwrap());
            }
            thread::yield_now();
        }
        child
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        // Its children die with it, a moment later: until then they would answer.
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_end(&mut Vec::new()).unwrap();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.kill();
    }
}
