//! Changes that others make in a share, as a daemon announces them to the agent of its guest.
//!
//! The share is on a file system of its own, in the daemon's mount namespace, so that nothing else happens there. The
//! guest is this test; so is its agent.

mod flood;
#[path = "../launch/mod.rs"]
mod launch;

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use launch::{Bench, Daemon, is_root, skipped};
use rustix::io::Errno;
use transom_frontend::{
    FrontEnd, Options,
    fuse::{Answer, Failure, Session},
    queue::Queue,
};
use transom_wire::{
    Opcode,
    agent::{AGENT_GID, Announcement, Changes, EXCHANGE, EXCHANGE_LEN, Hello, Kind, VERSION},
    ops::ioctl::{IOCTL_DIR, IoctlIn, IoctlOut},
};
use zerocopy::{FromZeros, IntoBytes};

const ROOT: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with a share, the directory `in` of a file system, and its guest.
struct Guest {
    session: Session<Queue>,
    _hiprio: Queue,
    _front_end: FrontEnd,
    daemon: Daemon,
    bench: Bench,
}

/// An agent in the guest, which acknowledges what it was told.
struct Agent {
    handle: u64,
    announced: u32,
}

impl Guest {
    /// Starts a daemon that announces changes. Says why if it cannot.
    fn start(options: &str) -> Option<Self> {
        if !is_root() {
            skipped("observing a file system needs root");
            return None;
        }
        let bench = Bench::new();
        let mount = format!("mount -t tmpfs tmpfs {0} && mkdir {0}/in", bench.share().display());
        let line = "--socket-path {S} --shared-dir {D}/in --metrics-socket metrics --events=auto --log-level info";
        let mut daemon = bench.start_after(&mount, &format!("{line} {options}"));
        let stream = daemon.connect();
        let mut guest = Self::over(stream, daemon, bench);
        let handle = guest.session.opendir(ROOT).unwrap();
        let registered = guest.as_agent(|session| exchange(session, handle, 0));
        if let Err(Failure::Errno(Errno::NOTTY)) = registered {
            guest.daemon.signal(rustix::process::Signal::TERM);
            let (_, said) = guest.daemon.wait();
            skipped(said.lines().find(|line| line.contains("no events")).unwrap_or("changes are not observed"));
            return None;
        }
        registered.unwrap();
        guest.session.releasedir(ROOT, handle).unwrap();
        Some(guest)
    }

    /// Starts a daemon of the same share for another guest.
    fn start_other(&self, options: &str) -> Self {
        let bench = Bench::new();
        let line = format!("--socket-path {{S}} --shared-dir {}/in --sandbox none {options}", self.directory());
        let mut daemon = bench.start(&line);
        let stream = daemon.connect();
        Self::over(stream, daemon, bench)
    }

    fn over(stream: UnixStream, daemon: Daemon, bench: Bench) -> Self {
        let front_end = FrontEnd::over(stream, Options::default()).unwrap();
        let hiprio = front_end.start_queue(0).unwrap();
        let session = Session::begin(front_end.start_queue(1).unwrap()).unwrap();
        Self { session, _hiprio: hiprio, _front_end: front_end, daemon, bench }
    }

    /// The file system of the share, as other processes reach it.
    fn directory(&self) -> String {
        format!("/proc/{}/root{}", self.daemon.pid(), self.bench.share().display())
    }

    /// Runs a script in the file system of the share.
    fn sh(&self, script: &str) {
        let status = Command::new("sh").args(["-c", script]).current_dir(self.directory()).status().unwrap();
        assert!(status.success(), "{script}: {status}");
    }

    /// Sends requests as a process of the agent's group does.
    fn as_agent<T>(&mut self, requests: impl FnOnce(&mut Session<Queue>) -> T) -> T {
        (self.session.gid, self.session.pid) = (AGENT_GID, 40);
        let result = requests(&mut self.session);
        (self.session.gid, self.session.pid) = (0, 1);
        result
    }

    /// Starts an agent.
    fn agent(&mut self) -> Agent {
        let handle = self.session.opendir(ROOT).unwrap();
        self.as_agent(|session| exchange(session, handle, 0)).unwrap();
        Agent { handle, announced: 0 }
    }

    /// Returns the value of a metric.
    fn metric(&self, name: &str) -> String {
        let mut stream = UnixStream::connect(self.bench.path().join("metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }
}

impl Agent {
    /// Acknowledges all, and returns whether changes were lost and what is announced next.
    fn next(&mut self, guest: &mut Guest) -> (bool, Vec<(Kind, String)>) {
        let (handle, replayed) = (self.handle, self.announced);
        let (head, changes) = guest.as_agent(|session| exchange(session, handle, replayed)).unwrap();
        self.announced = head.count.get();
        (head.is_overflow.get() != 0, changes)
    }

    /// Collects what is announced until `name` is.
    fn until(&mut self, guest: &mut Guest, name: &str) -> (bool, Vec<(Kind, String)>) {
        self.replaying(guest, name, |_, _| ())
    }

    /// As [`Agent::until`], and replays each change before the exchange that acknowledges it: after that, a request
    /// matches it no longer.
    fn replaying(
        &mut self,
        guest: &mut Guest,
        name: &str,
        mut replay: impl FnMut(&mut Session<Queue>, &str),
    ) -> (bool, Vec<(Kind, String)>) {
        let deadline = Instant::now() + PATIENCE;
        let (mut is_overflow, mut all) = (false, Vec::new());
        while !all.iter().any(|(_, announced)| announced == name) {
            assert!(Instant::now() < deadline, "{name} is not announced: {is_overflow} {all:?}");
            let (lost, changes) = self.next(guest);
            is_overflow |= lost;
            guest.as_agent(|session| changes.iter().for_each(|(_, name)| replay(session, name)));
            all.extend(changes);
        }
        (is_overflow, all)
    }

    fn leave(self, guest: &mut Guest) {
        guest.session.releasedir(ROOT, self.handle).unwrap();
    }
}

/// Exchanges once; `replayed` changes of the exchange before are acknowledged.
fn exchange(session: &mut Session<Queue>, handle: u64, replayed: u32) -> Answer<(Announcement, Vec<(Kind, String)>)> {
    let hello = Hello { version: VERSION.into(), replayed: replayed.into(), ..Hello::default() };
    let mut argument = [0; EXCHANGE_LEN];
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    let arg = IoctlIn {
        fh: handle.into(),
        flags: IOCTL_DIR.into(),
        cmd: EXCHANGE.into(),
        in_size: (EXCHANGE_LEN as u32).into(),
        out_size: (EXCHANGE_LEN as u32).into(),
        ..IoctlIn::new_zeroed()
    };
    let room = size_of::<IoctlOut>() + EXCHANGE_LEN;
    let reply = session.request(Opcode::Ioctl as u32, ROOT, &[arg.as_bytes(), &argument], room)?;
    let data: &[u8; EXCHANGE_LEN] = reply[size_of::<IoctlOut>()..].try_into().expect("the data of an exchange");
    let (head, changes) = Changes::parse(data).expect("an announcement");
    let changes = changes.map(|change| change.expect("a change"));
    Ok((head, changes.map(|change| (change.kind, String::from_utf8_lossy(change.name).into_owned())).collect()))
}

fn errno<T>(answer: Answer<T>) -> Option<Errno> {
    match answer {
        Err(Failure::Errno(errno)) => Some(errno),
        _ => None,
    }
}

#[test]
fn names_stay_valid_for_longer_exactly_while_an_agent_keeps_up() {
    for (options, longer) in [("", 30), ("--events-validity 7", 7), ("--events-validity 0", 1), ("--cache never", 0)] {
        let Some(mut guest) = Guest::start(options) else { return };
        guest.sh("mkdir in/dir; echo x > in/file; echo y > in/linked; ln in/linked in/another");
        let validity = |guest: &mut Guest, name: &str| {
            let entry = guest.session.lookup(ROOT, name.as_bytes()).unwrap();
            let attributes = guest.session.request(
                Opcode::Getattr as u32,
                entry.nodeid.get(),
                &[&[0; 16]],
                size_of::<transom_wire::attr::AttrOut>(),
            );
            let of_attributes = u64::from_le_bytes(attributes.unwrap()[..8].try_into().unwrap());
            (entry.entry_valid.get(), entry.attr_valid.get(), of_attributes)
        };
        let usual = longer.min(1);
        assert_eq!(validity(&mut guest, "file"), (usual, usual, usual), "{options}: without an agent");

        let mut agent = guest.agent();
        let deadline = Instant::now() + PATIENCE;
        // The changes above may be read only now, and no name is trusted for long while that happens.
        while validity(&mut guest, "dir") != (longer, longer, longer) {
            assert!(Instant::now() < deadline, "{options}: {:?}", validity(&mut guest, "dir"));
            agent.next(&mut guest);
        }
        assert_eq!(validity(&mut guest, "file"), (longer, longer, longer), "{options}: a regular file");
        assert_eq!(validity(&mut guest, "linked"), (longer, longer, longer), "{options}: a file with two names");
        agent.leave(&mut guest);
        assert_eq!(validity(&mut guest, "dir"), (usual, usual, usual), "{options}: the agent is gone");
    }
}

#[test]
fn what_another_guest_does_is_announced_and_what_the_guest_does_is_not() {
    for options in ["--sandbox namespace", "--sandbox none --host-changes mandatory --seccomp trap"] {
        let Some(mut guest) = Guest::start(options) else { return };
        let mut other = guest.start_other("");
        let mut agent = guest.agent();

        guest.session.mkdir(ROOT, b"own", 0o755).unwrap();
        other.session.mkdir(ROOT, b"first", 0o755).unwrap();
        guest.session.rmdir(ROOT, b"own").unwrap();
        other.session.rmdir(ROOT, b"first").unwrap();
        other.session.mkdir(ROOT, b"last", 0o755).unwrap();

        let (is_overflow, changes) = agent.until(&mut guest, "last");
        let expected = [(Kind::Created, "first"), (Kind::Removed, "first"), (Kind::Created, "last")];
        assert_eq!(changes, expected.map(|(kind, name)| (kind, name.to_owned())), "{options}");
        assert!(!is_overflow);
        agent.next(&mut guest);
        assert_eq!(guest.metric("transom_replayed_changes_total"), "3");
        assert_eq!(guest.metric("transom_agents"), "1");
        agent.leave(&mut guest);
        assert_eq!(guest.metric("transom_agents"), "0");
    }
}

#[test]
fn what_an_agent_replays_is_no_change_to_another_guest() {
    let Some(mut first) = Guest::start("--sandbox none") else { return };
    let mut second = first.start_other("--events=always");
    let (mut of_first, mut of_second) = (first.agent(), second.agent());
    // The guest knows the file, so that its removal is replayed by a request.
    first.session.mkdir(ROOT, b"known", 0o755).unwrap();
    first.session.mkdir(ROOT, b"first", 0o755).unwrap();
    // As the kernel of the second guest does for its agent. The two may come in one announcement, or in one each.
    let (_, changes) = of_second.replaying(&mut second, "first", |session, name| {
        session.mkdir(ROOT, name.as_bytes(), 0o700).unwrap();
    });
    let of_names =
        |names: &[(Kind, &str)]| names.iter().map(|&(kind, name)| (kind, name.to_owned())).collect::<Vec<_>>();
    assert_eq!(changes, of_names(&[(Kind::Created, "known"), (Kind::Created, "first")]));
    second.session.mkdir(ROOT, b"second", 0o755).unwrap();
    let (_, changes) = of_first.until(&mut first, "second");
    assert_eq!(changes, of_names(&[(Kind::Created, "second")]), "announced to the guest that began");

    first.session.rmdir(ROOT, b"known").unwrap();
    let (_, changes) = of_second.until(&mut second, "known");
    assert_eq!(changes, of_names(&[(Kind::Removed, "known")]), "nothing is announced twice");
    second.as_agent(|session| session.rmdir(ROOT, b"known")).unwrap();
    first.sh("mkdir in/last");
    let (_, of_the_first) = of_first.until(&mut first, "last");
    let (_, of_the_second) = of_second.until(&mut second, "last");
    for changes in [of_the_first, of_the_second] {
        assert_eq!(changes, of_names(&[(Kind::Created, "last")]));
    }
    assert_eq!(first.metric("transom_replay_overflows_total"), "0");
}

#[test]
fn a_change_under_another_name_is_announced_by_the_file() {
    let Some(mut guest) = Guest::start("") else { return };
    guest.sh("mkdir in/dir; echo x > in/dir/file; ln in/dir/file other; echo y > unknown");
    let mut agent = guest.agent();
    let dir = guest.session.lookup(ROOT, b"dir").unwrap().nodeid.get();
    guest.session.lookup(dir, b"file").unwrap();
    guest.sh("mkdir in/first");
    agent.until(&mut guest, "first");

    guest.sh("echo longer > other; echo longer > unknown; mkdir in/second");
    let (_, changes) = agent.until(&mut guest, "second");
    let of_file = changes.iter().filter(|(kind, name)| *kind == Kind::Written && name.is_empty()).count();
    assert_eq!(of_file, 1, "{changes:?}");
    guest.sh("rm other; mkdir in/third");
    let (_, changes) = agent.until(&mut guest, "third");
    assert!(changes.contains(&(Kind::Stale, String::new())), "its number of names: {changes:?}");
    agent.leave(&mut guest);
}

#[test]
fn others_cannot_be_the_agent_and_its_group_changes_nothing() {
    let Some(mut guest) = Guest::start("") else { return };
    guest.sh("echo x > in/file");
    let mut agent = guest.agent();
    let handle = guest.session.opendir(ROOT).unwrap();

    assert_eq!(errno(guest.as_agent(|session| exchange(session, handle, 0))), Some(Errno::BUSY), "a second one");
    guest.session.uid = 1000;
    assert_eq!(errno(guest.as_agent(|session| exchange(session, handle, 0))), Some(Errno::PERM), "not root");
    guest.session.uid = 0;
    assert_eq!(errno(exchange(&mut guest.session, handle, 0)), Some(Errno::PERM), "another group");
    let unlinked = guest.as_agent(|session| session.unlink(ROOT, b"file"));
    assert_eq!(errno(unlinked), Some(Errno::PERM), "a removal that is not announced");

    // It says that it replayed more than it was told.
    agent.announced = u32::MAX;
    guest.sh("rm in/file; echo new > in/file");
    agent.until(&mut guest, "file");
    agent.leave(&mut guest);
    let unlinked = guest.as_agent(|session| session.unlink(ROOT, b"file"));
    assert_eq!(errno(unlinked), Some(Errno::PERM), "an announced removal, but the agent is gone");
    guest.sh("test -e in/file");
    assert_eq!(guest.metric("transom_replayed_changes_total"), "0");
}

#[test]
fn an_agent_that_does_not_answer_is_told_that_changes_were_lost_and_delays_nobody() {
    let Some(mut guest) = Guest::start("") else { return };
    let mut agent = guest.agent();

    // More than wait for an agent: each is a file that is created.
    guest.sh("seq -f 'in/%.0f' 20000 | xargs touch");
    guest.session.getattr(ROOT, None).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while guest.metric("transom_replay_overflows_total") == "0" {
        assert!(Instant::now() < deadline, "nothing was lost");
        std::thread::sleep(Duration::from_millis(5));
    }
    // What was made before may be lost, too, so something is made whenever nothing waits.
    let deadline = Instant::now() + 2 * PATIENCE;
    let (mut is_overflow, mut made) = (false, 0);
    loop {
        assert!(Instant::now() < deadline, "nothing is announced any more: {is_overflow} {made}");
        let (lost, changes) = agent.next(&mut guest);
        is_overflow |= lost;
        if is_overflow && changes.iter().any(|(_, name)| name.starts_with("after")) {
            return;
        }
        if changes.is_empty() {
            guest.sh(&format!("mkdir in/after{made}"));
            made += 1;
        }
    }
}
