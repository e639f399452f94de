//! Each feature of the table of what survives what, with each way of surviving: it works, or is refused with the reason
//! that the table has.

#[path = "../launch/mod.rs"]
mod launch;

use std::{fs, os::unix::fs::DirBuilderExt as _, os::unix::net::UnixStream, process::Command, thread, time::Duration};

use launch::{Bench, Daemon, skipped};
use rustix::process::{Pid, Signal, kill_process};
use transom_frontend::{FrontEnd, Options, fuse::Session, message::protocol_feature, queue::Queue};
use transom_host::survival::{Feature, Row, TABLE, Verdict, Way};

/// The high-priority queue, and the first request queue.
const QUEUES: [u32; 2] = [0, 1];
const READ_WRITE: u32 = libc::O_RDWR as u32;

/// A guest with a file open, and its place on the host.
struct Guest {
    front_end: FrontEnd,
    session: Session<Queue>,
    /// Its ring is in the guest's memory as long as this lives.
    _hiprio: Queue,
    file: u64,
    fh: u64,
    /// Bytes that the file has.
    content: Vec<u8>,
}

impl Guest {
    fn begin(daemon: &mut Daemon) -> Self {
        let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
        let hiprio = front_end.start_queue(QUEUES[0]).unwrap();
        let mut session = Session::begin(front_end.start_queue(QUEUES[1]).unwrap()).unwrap();
        let created = session.create(1, b"file", READ_WRITE, 0o644).unwrap();
        let (file, fh) = (created.entry.nodeid.get(), created.open.fh.get());
        let mut guest = Self { front_end, session, _hiprio: hiprio, file, fh, content: Vec::new() };
        guest.assert_goes_on();
        guest
    }

    /// Appends to the open file, and reads all of it.
    #[track_caller]
    fn assert_goes_on(&mut self) {
        self.session.write(self.file, self.fh, self.content.len() as u64, b"more ").unwrap();
        self.content.extend_from_slice(b"more ");
        assert_eq!(self.session.read(self.file, self.fh, 0, 4096).unwrap(), self.content);
        assert_eq!(self.session.lookup(1, b"file").unwrap().nodeid.get(), self.file);
    }
}

/// A share on which a feature is tried.
struct Trial {
    bench: Bench,
    options: &'static str,
}

impl Trial {
    fn of(feature: Feature) -> Self {
        let options = match feature {
            Feature::Window => "--dax-window=64M --tag=share --front-end=qemu",
            Feature::Overlay => "--overlay=layers",
            Feature::Events => "--events=always",
            Feature::Notifications => "--notification-queue --tag=share",
            Feature::HostChanges => "--host-changes=prefer",
            Feature::CoherenceGroup => "--coherence-group=./group",
            Feature::PosixLocks => "--posix-lock",
            Feature::Flock => "--flock",
            Feature::Writeback => "--writeback",
            Feature::Quota => "--quota=1M",
            Feature::HiddenPaths => "--hide=secret",
            Feature::Journal => "--resilient",
        };
        let bench = Bench::with_executable();
        for layer in ["layers/upper", "layers/work"] {
            fs::create_dir_all(bench.path().join(layer)).unwrap();
        }
        // A group's directory is its owner's alone.
        fs::DirBuilder::new().mode(0o700).create(bench.path().join("group")).unwrap();
        fs::write(bench.share().join("secret"), "").unwrap();
        Self { bench, options }
    }

    fn start(&self, way: &str) -> Daemon {
        self.bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} {} {way}", self.options))
    }

    /// Returns what the daemon says that does not start with `way`.
    #[track_caller]
    fn does_not_start(&self, way: &str) -> String {
        let (status, said) = self.start(way).wait();
        assert!(!status.success(), "{} {way}: it has started", self.options);
        said
    }
}

/// Tries the way, and checks that it is refused with the reason in the table, or works.
fn take(trial: &Trial, row: &Row, way: Way) {
    let reason = match row.verdict(way) {
        Verdict::Works | Verdict::Limited(_) => None,
        Verdict::Refused(reason) => Some(reason),
        Verdict::Excluded(reason) => {
            let option = if way == Way::Restart { "--resilient" } else { "--upgradable" };
            let said = trial.does_not_start(option);
            assert!(said.contains(reason) && said.contains(row.option), "{} and {way:?}: {said}", row.option);
            return;
        }
    };
    let said = match way {
        Way::Migration => migrate(trial, reason.is_none()),
        Way::Upgrade => upgrade(trial, reason.is_none()),
        Way::Restart => restart(trial),
    };
    let expected = reason.unwrap_or_default();
    assert!(said.contains(expected), "{} and {way:?}: {expected:?} is not in {said}", row.option);
}

/// Moves a guest to a second daemon, or finds that no front end can. Returns the log of the first.
fn migrate(trial: &Trial, is_offered: bool) -> String {
    let mut source = trial.start("");
    let mut guest = Guest::begin(&mut source);
    let needed = protocol_feature::LOG_SHMFD | protocol_feature::DEVICE_STATE;
    let found = guest.front_end.protocol_features & needed;
    assert_eq!(found, if is_offered { needed } else { 0 }, "{}", trial.options);
    if is_offered {
        // With `--flock`, nothing may be open.
        let is_open = !trial.options.contains("--flock");
        if !is_open {
            guest.session.release(guest.file, guest.fh).unwrap();
        }
        let (elsewhere, share) = (Bench::new(), trial.bench.share());
        let line = format!("--socket-path {{S}} --shared-dir {} {}", share.display(), trial.options);
        let mut destination = elsewhere.start(&line);
        QUEUES.iter().for_each(|&queue| _ = guest.front_end.stop_queue(queue).unwrap());
        let state = guest.front_end.save_state().unwrap();
        let there = FrontEnd::over(destination.connect(), Options::default()).unwrap();
        there.load_state(&state).unwrap();
        let (hiprio, queue) = (there.start_queue(QUEUES[0]).unwrap(), there.start_queue(QUEUES[1]).unwrap());
        let Guest { file, mut fh, content, front_end, .. } = guest;
        drop(front_end);
        let mut session = Session::new(queue);
        if !is_open {
            fh = session.open(file, READ_WRITE).unwrap();
        }
        let mut moved = Guest { front_end: there, session, _hiprio: hiprio, file, fh, content };
        moved.assert_goes_on();
        drop(moved);
        assert!(destination.wait().0.success());
    } else {
        guest.assert_goes_on();
        drop(guest);
    }
    source.wait().1
}

/// Upgrades the daemon of a guest, and returns what the command says.
fn upgrade(trial: &Trial, succeeds: bool) -> String {
    let mut daemon = trial.start("--upgradable");
    let mut guest = Guest::begin(&mut daemon);
    let mut ask = Command::new(env!("CARGO_BIN_EXE_transomd"));
    let output = ask.arg("--upgrade").arg(trial.bench.socket()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!succeeds)), "{}: {said}", trial.options);
    guest.assert_goes_on();
    drop(guest);
    assert!(daemon.wait().0.success());
    said
}

/// Kills the process that serves, and returns the log of the rest.
fn restart(trial: &Trial) -> String {
    let mut daemon = trial.start(if trial.options == "--resilient" { "" } else { "--resilient" });
    let mut guest = Guest::begin(&mut daemon);
    let mut pid = daemon.pid();
    while let Some(child) = child_of(pid) {
        pid = child;
    }
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    guest.assert_goes_on();
    drop(guest);
    let (status, said) = daemon.wait();
    assert!(status.success() && said.contains("the daemon goes on in another process"), "{}: {said}", trial.options);
    said
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Returns whether a daemon starts with the feature alone; otherwise says why not.
fn is_available(feature: Feature) -> bool {
    let trial = Trial::of(feature);
    let mut daemon = trial.start("");
    loop {
        if UnixStream::connect(trial.bench.socket()).is_ok() {
            return true;
        }
        if let Some(said) = daemon.ended() {
            skipped(&format!("{feature:?}: {}", said.trim()));
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_pair_works_or_is_refused_with_the_reason() {
    for row in TABLE.iter().filter(|row| is_available(row.feature)) {
        for way in [Way::Migration, Way::Upgrade, Way::Restart] {
            take(&Trial::of(row.feature), row, way);
        }
    }
}
