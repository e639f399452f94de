//! The daemon whose calls are disturbed, and what can be seen of it from outside.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use transom_frontend::{FrontEnd, Options, message::HANG_AFTER};

use crate::{
    calls,
    disturber::Disturber,
    launch::{self, Bench},
    listener,
};

/// The options of every round; one configuration adds how inodes are held.
const LINE: &str = "--socket-path {S} --shared-dir {D} --sandbox none --keep-serving --posix-lock --flock --xattr \
                    --security-label=auto --num-request-queues 2 --metrics-socket metrics";

pub(crate) struct Daemon {
    process: launch::Daemon,
    bench: Bench,
    pub(crate) disturber: Disturber,
}

/// Long enough for a loaded machine; only a daemon that keeps something waits for it.
pub(crate) const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// What the daemon holds for its guest, by its own word and by the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) inodes: u64,
    pub(crate) files: u64,
    pub(crate) lock_owners: u64,
    pub(crate) waiters: u64,
    /// Locks on files of the share, as the host lists them.
    pub(crate) locks: u64,
}

impl Held {
    pub(crate) const NOTHING: Self = Self { inodes: 0, files: 0, lock_owners: 0, waiters: 0, locks: 0 };
}

impl Daemon {
    pub(crate) fn start(options: &str) -> Self {
        let bench = Bench::new();
        let mut arrival = None;
        let process = bench.start_with(&format!("{LINE} {options}"), |command| {
            command.env("RUST_BACKTRACE", "0");
            arrival = Some(listener::ask(command, calls::UNDISTURBED).unwrap());
        });
        let disturber = Disturber::start(arrival.unwrap().listener().unwrap());
        Self { process, bench, disturber }
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.bench.share()
    }

    /// Where models of the share are made.
    pub(crate) fn model(&self) -> PathBuf {
        self.bench.path().join("model/share")
    }

    pub(crate) fn connect(&mut self) -> FrontEnd {
        FrontEnd::over(self.process.connect(), Options::default()).unwrap()
    }

    /// Ends the daemon; returns what it has said.
    pub(crate) fn end(self) -> String {
        self.process.signal(rustix::process::Signal::TERM);
        self.process.wait().1
    }

    /// Returns what is held once it is `expected`, or what is still held when that takes too long.
    ///
    /// A lock that others take or release between two reads of `/proc/locks` shifts its lines, so that one look may
    /// miss a lock or count it twice.
    pub(crate) fn held_when_settled(&self, inodes: &BTreeSet<u64>, expected: Held) -> Held {
        let begun_at = Instant::now();
        loop {
            let held = self.held(inodes);
            if held == expected || begun_at.elapsed() > SETTLES_WITHIN {
                return held;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what is held when two looks agree.
    pub(crate) fn held_twice(&self, inodes: &BTreeSet<u64>) -> Held {
        self.held_when_settled(inodes, self.held(inodes))
    }

    /// What is held now; `inodes` are those that locks may be on.
    pub(crate) fn held(&self, inodes: &BTreeSet<u64>) -> Held {
        let metrics = self.metrics();
        let gauge = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
        };
        Held {
            inodes: gauge("transom_inodes"),
            files: gauge("transom_open_files"),
            lock_owners: gauge("transom_lock_owners"),
            waiters: gauge("transom_lock_waiters"),
            locks: locks_on(&self.share(), inodes),
        }
    }

    /// Requests in flight of all queues.
    pub(crate) fn in_flight(&self) -> u64 {
        let metrics = self.metrics();
        let depths = metrics.lines().filter(|line| line.starts_with("transom_queue_depth_requests{"));
        depths.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(self.bench.path().join("metrics")).unwrap();
        stream.set_read_timeout(Some(HANG_AFTER)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The descriptors that it has open, without those of readers of the metrics, which come and go.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", self.process.pid())) else { return Vec::new() };
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let mut links: Vec<_> = links.map(|link| link.to_string_lossy().into_owned()).collect();
        links.retain(|link| !link.starts_with("socket:"));
        // Numbers of anonymous things differ from one connection to the next.
        links.iter_mut().for_each(|link| link.truncate(link.find([':', '[']).unwrap_or(link.len())));
        links.sort_unstable();
        links
    }

    /// Waits until no thread but `held` has anything to do.
    pub(crate) fn wait_for_rest(&self, held: u32, mut is_over: impl FnMut() -> bool) {
        const LOOKS: u32 = 5;
        let begun_at = Instant::now();
        let mut looks_asleep = 0;
        while looks_asleep < LOOKS && !is_over() {
            looks_asleep = if self.is_asleep_but_for(held) { looks_asleep + 1 } else { 0 };
            assert!(begun_at.elapsed() < HANG_AFTER, "the daemon is never idle");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_asleep_but_for(&self, held: u32) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.process.pid())) else { return true };
        tasks.filter_map(Result::ok).filter(|task| task.file_name() != held.to_string().as_str()).all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name in parentheses, which may contain any character.
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('S'))
        })
    }
}

/// The inodes of the files in `share` and below it.
pub(crate) fn inodes_of(share: &Path) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(share).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        inodes.insert(metadata.ino());
        if metadata.is_dir() {
            inodes.extend(inodes_of(&path));
        }
    }
    inodes
}

/// Counts the host's locks on `inodes` of the file system of `share`. Locks that wait do not count.
fn locks_on(share: &Path, inodes: &BTreeSet<u64>) -> u64 {
    let dev = share.metadata().unwrap().dev();
    let device = format!("{:02x}:{:02x}", libc::major(dev), libc::minor(dev));
    let files: BTreeSet<_> = inodes.iter().map(|ino| format!("{device}:{ino}")).collect();
    let list = locks_of_host().unwrap();
    let lines = list.lines().filter(|line| !line.contains("->"));
    lines.filter(|line| line.split_whitespace().any(|word| files.contains(word))).count() as u64
}

/// Returns the text of `/proc/locks`, from as few reads as the kernel allows.
fn locks_of_host() -> std::io::Result<String> {
    let mut file = fs::File::open("/proc/locks")?;
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            len => text.extend_from_slice(&chunk[..len]),
        }
    }
}
