//! Too few descriptors, at the start and while a guest is served: errors, and never a hang or a panic.

use std::{
    fs,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use transom_frontend::{FrontEnd, Options, fuse::Session, queue::Queue};

use crate::launch::{Bench, Daemon};

const ROOT: u64 = 1;
/// What needs descriptors of its own.
const FEATURES: [&str; 3] = [
    "--notification-queue --tag t",
    "--coherence-group ./group",
    "--coherence-group ./group --notification-queue --tag t --host-changes prefer",
];

/// Waits until the daemon accepts, or has ended: then with what it said.
fn connect(bench: &Bench, daemon: &mut Daemon) -> Result<UnixStream, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(stream) = UnixStream::connect(bench.socket()) {
            return Ok(stream);
        }
        if let Some(said) = daemon.ended() {
            return Err(said);
        }
        assert!(Instant::now() < deadline, "it neither listens nor ends");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Begins a session, if the daemon has what it takes.
fn begin(stream: UnixStream) -> anyhow::Result<(FrontEnd, Session<Queue>)> {
    let front_end = FrontEnd::over(stream, Options::default())?;
    let session = Session::begin(front_end.start_queue(1)?).map_err(|failure| anyhow::anyhow!("{failure}"))?;
    Ok((front_end, session))
}

/// Uses files and directories. Each request is answered, perhaps by an error.
fn use_share(session: &mut Session<Queue>, round: usize) {
    for number in 0..8 {
        let name = format!("file {round} {number}");
        let created = session.create(ROOT, name.as_bytes(), libc::O_RDWR as u32, 0o644);
        let answers = [
            created.map(drop),
            session.lookup(ROOT, name.as_bytes()).map(drop),
            session.mkdir(ROOT, format!("{name} d").as_bytes(), 0o755).map(drop),
            session.opendir(ROOT).map(drop),
            session.unlink(ROOT, name.as_bytes()),
        ];
        for failure in answers.into_iter().filter_map(Result::err) {
            assert!(failure.errno().is_some(), "{failure}");
        }
    }
}

#[test]
fn a_start_with_few_descriptors_ends_with_a_message_or_serves() {
    for features in FEATURES {
        for limit in (4..32).step_by(5).chain([48, 120, 150, 240]) {
            let what = format!("{features}, {limit} descriptors");
            let bench = Bench::new();
            fs::create_dir(bench.path().join("group")).unwrap();
            let limits = format!("ulimit -n {limit} && exec \"$@\"");
            let line = format!("--socket-path {{S}} --shared-dir {{D}} {features}");
            let mut daemon = bench.start_under(&["sh", "-c", &limits, "sh"], &line, |_| {});
            let said = match connect(&bench, &mut daemon) {
                Err(said) => {
                    assert!(!said.trim().is_empty(), "{what}: it says nothing");
                    said
                }
                Ok(stream) => {
                    if let Ok((_front_end, mut session)) = begin(stream) {
                        use_share(&mut session, 0);
                    }
                    daemon.wait().1
                }
            };
            assert!(!said.contains("panicked"), "{what}: {said}");
        }
    }
}

#[test]
fn a_daemon_that_runs_out_of_descriptors_answers_and_recovers() {
    for features in FEATURES {
        let bench = Bench::new();
        fs::create_dir(bench.path().join("group")).unwrap();
        let mut daemon = bench.start(&format!("--socket-path {{S}} --shared-dir {{D}} {features}"));
        let (front_end, mut session) = begin(daemon.connect()).unwrap();
        let pid = Pid::from_raw(daemon.serving_pid().cast_signed()).unwrap();
        let in_use = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = |current| prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum }).unwrap();
        for round in 0..6 {
            limit(Some(in_use + round as u64));
            // The host changes the share meanwhile, which is looked at too.
            fs::write(bench.share().join(format!("host {round}")), "").unwrap();
            use_share(&mut session, round);
        }
        limit(maximum);
        session.create(ROOT, b"last", libc::O_RDWR as u32, 0o644).unwrap();
        session.lookup(ROOT, b"host 5").unwrap();
        drop((session, front_end));
        let (status, said) = daemon.wait();
        assert!(status.success() && !said.contains("panicked"), "{features}: {status}: {said}");
    }
}
