//! Changes that the host makes in a share, as the metrics of a real daemon count them.
//!
//! The share is on a file system of its own, in the daemon's mount namespace, so that nothing else happens there.

#[path = "../launch/mod.rs"]
mod launch;

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use launch::{Bench, Daemon, is_root, skipped};
use transom_frontend::{FrontEnd, Options, fuse::Session};

const ROOT: u64 = 1;

/// What a daemon has seen.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    host: u64,
    own: u64,
    overflows: u64,
}

impl Counts {
    /// Asks a daemon for its metrics.
    fn of(metrics: &Path) -> Self {
        let mut stream = UnixStream::connect(metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}_total ")));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
        };
        Self {
            host: value("transom_host_changes"),
            own: value("transom_own_changes"),
            overflows: value("transom_host_change_overflows"),
        }
    }

    /// Asks until `holds` is so.
    fn until(metrics: &Path, what: &str, holds: impl Fn(&Self) -> bool) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let counts = Self::of(metrics);
            if holds(&counts) {
                return counts;
            }
            assert!(Instant::now() < deadline, "not so: {what}: {counts:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A daemon that observes its share, the directory `in` of a file system that also has `out`.
struct Observing {
    bench: Bench,
    daemon: Daemon,
    stream: UnixStream,
}

impl Observing {
    /// Starts a daemon. Says why if it cannot observe.
    fn start(options: &str) -> Option<Self> {
        if !is_root() {
            skipped("observing a file system needs root");
            return None;
        }
        let bench = Bench::new();
        let share = bench.share();
        let mount = format!("mount -t tmpfs tmpfs {0} && mkdir {0}/in {0}/out", share.display());
        let line = "--socket-path {S} --shared-dir {D}/in --metrics-socket metrics --host-changes prefer";
        let mut daemon = bench.start_after(&mount, &format!("{line} {options}"));
        let stream = daemon.connect();
        let observing = Self { bench, daemon, stream };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(observing.metrics()).is_err() {
            assert!(Instant::now() < deadline, "the daemon serves no metrics");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Whoever answers observes already.
        Counts::of(&observing.metrics());
        observing.sh("mkdir in/first");
        let deadline = Instant::now() + Duration::from_secs(20);
        while Counts::of(&observing.metrics()).host == 0 {
            if Instant::now() > deadline {
                observing.daemon.signal(rustix::process::Signal::TERM);
                let (_, said) = observing.daemon.wait();
                assert!(said.contains("changes on the host go unnoticed"), "{said}");
                skipped(said.lines().find(|line| line.contains("unnoticed")).unwrap_or_default());
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(observing)
    }

    fn metrics(&self) -> PathBuf {
        self.bench.path().join("metrics")
    }

    /// Runs a script in the file system of the share.
    fn sh(&self, script: &str) {
        let share = format!("/proc/{}/root{}", self.daemon.pid(), self.bench.share().display());
        assert!(Command::new("sh").args(["-c", script]).current_dir(share).status().unwrap().success());
    }
}

#[test]
fn changes_by_the_host_and_by_the_guest_are_counted_apart() {
    for options in ["--sandbox namespace", "--sandbox chroot", "--sandbox none --seccomp trap"] {
        let Some(host) = Observing::start(options) else { return };
        let metrics = host.metrics();
        let front_end = FrontEnd::over(host.stream.try_clone().unwrap(), Options::default()).unwrap();
        let _hiprio = front_end.start_queue(0).unwrap();
        let mut guest = Session::begin(front_end.start_queue(1).unwrap()).unwrap();
        assert_eq!(Counts::of(&metrics), Counts { host: 1, own: 0, overflows: 0 });

        for number in 0..5 {
            guest.mkdir(ROOT, format!("guest{number}").as_bytes(), 0o755).unwrap();
        }
        Counts::until(&metrics, "five directories of the guest", |counts| counts.own == 5);
        host.sh("mkdir in/host; mv in/host in/guest0/; rmdir in/guest0/host");
        let counts = Counts::until(&metrics, "three changes of the host", |counts| counts.host == 4);

        assert_eq!(counts, Counts { host: 4, own: 5, overflows: 0 }, "{options}");
    }
}

#[test]
fn changes_outside_of_the_share_are_not_counted() {
    let Some(host) = Observing::start("") else { return };

    host.sh("mkdir in/x out/1 out/1/2; chmod 700 out/1; mv in/x out/x; mkdir out/3 in/y");

    let counts = Counts::until(&host.metrics(), "the last change", |counts| counts.host >= 4);
    assert_eq!(counts, Counts { host: 4, own: 0, overflows: 0 });
}

#[test]
fn what_cannot_be_observed_is_said() {
    let bench = Bench::of_ordinary_user();
    let line = "--socket-path {S} --shared-dir {D} --sandbox none --host-changes";
    let (status, said) = bench.start(&format!("{line} mandatory")).wait();
    assert!(
        !status.success() && said.contains("--host-changes mandatory: ") && said.contains("CAP_SYS_ADMIN"),
        "{said}"
    );

    let mut daemon = bench.start(&format!("{line} prefer"));
    drop(daemon.connect());
    let (status, said) = daemon.wait();
    assert!(status.success() && said.contains("changes on the host go unnoticed: "), "{said}");

    let bench = Bench::new();
    let (status, said) = bench.start(&format!("{line} mandatory --inode-file-handles never")).wait();
    assert!(!status.success() && said.contains("--inode-file-handles never"), "{said}");
}
