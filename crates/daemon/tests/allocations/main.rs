//! The daemon allocates no heap memory for a request, from the ring to the used entry, once it has warmed up; for a
//! file that is created and removed it allocates once.
//!
//! The back end runs on threads of this process over a directory of the host. The test's own thread is the front end
//! and the guest; what it allocates is not counted, what any other thread allocates is. One test, since the count is
//! that of the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod daemon;
mod pages;

use rustix::fs::OFlags;
use transom_allocations::{self as allocations, CountingAllocator};
use transom_frontend::fuse::Session;
use transom_host::passthrough::{Config, FileHandles};

use daemon::Daemon;
use pages::Pages;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ROOT: u64 = 1;
const FLAGS: u32 = OFlags::RDWR.bits();

/// Files that exist at one time before anything is counted, so that each of the 32 shards of the daemon's table has had
/// entries: a file lands in one of them by chance, and the probability that 1000 files miss one is below 10^-12.
const WARM_UP_FILES: usize = 1000;
const WARM_UP_ROUNDS: usize = 50;
const COUNTED_ROUNDS: usize = 200;

/// How often the rounds are counted at most. A thread that serves a READDIR for the first time makes memory that it
/// keeps, and the scheduler decides when that is; what a request allocates shows each time.
const COUNTS_MAX: usize = 4;

/// Data of the largest READ and WRITE, in pages of their own as Linux sends it.
const LARGE: usize = 1 << 20;

/// What a round does, in this order, and the allocations that each request may make.
///
/// An inode that loses its last name needs a descriptor, which is shared with the requests that use the inode. CREATE
/// opens it if the guest most likely removes the file soon, UNLINK otherwise: one allocation in the life of a file.
const OPERATIONS: [(&str, u64); 14] = [
    ("LOOKUP", 0),
    ("GETATTR", 0),
    ("READ 4 KiB", 0),
    ("WRITE 4 KiB", 0),
    ("CREATE", 1),
    ("RELEASE", 0),
    ("UNLINK", 1),
    ("FORGET", 0),
    ("OPEN", 0),
    ("READDIR", 0),
    ("READDIRPLUS", 0),
    ("FALLOCATE, on the pool", 0),
    ("READ 1 MiB", 0),
    ("WRITE 1 MiB", 0),
];

/// A guest with one file open.
struct Guest<'d> {
    daemon: &'d Daemon,
    session: Session<Pages>,
    nodeid: u64,
    fh: u64,
    /// The root, open.
    directory: u64,
    counts: [u64; OPERATIONS.len()],
    traces: [Option<String>; OPERATIONS.len()],
    next: usize,
}

impl Guest<'_> {
    /// Sends one request; the daemon has finished with it when this returns.
    fn count<T>(&mut self, request: impl FnOnce(&mut Session<Pages>) -> T) -> T {
        let before = allocations::count();
        if self.traces[self.next].is_none() {
            allocations::trace_next();
        }
        let answer = request(&mut self.session);
        self.daemon.settle();
        let trace = allocations::take_trace();
        self.traces[self.next] = self.traces[self.next].take().or(trace);
        self.counts[self.next] += allocations::count() - before;
        self.next += 1;
        answer
    }

    /// Lets the daemon's tables grow to more than they will hold when allocations are counted.
    fn warm_up(&mut self, large: &[u8]) {
        // Once more with the daemon expecting that each file is removed, as it does when allocations are counted.
        (0..2).for_each(|_| self.create_and_remove_many());
        (0..WARM_UP_ROUNDS).for_each(|_| self.round(large));
        (self.counts, self.traces) = Default::default();
    }

    fn create_and_remove_many(&mut self) {
        let name = |file: usize| format!("file-{file}");
        let nodes: Vec<u64> = (0..WARM_UP_FILES)
            .map(|file| {
                let created = self.session.create(ROOT, name(file).as_bytes(), FLAGS, 0o600).unwrap();
                self.session.release(created.entry.nodeid.get(), created.open.fh.get()).unwrap();
                created.entry.nodeid.get()
            })
            .collect();
        (0..WARM_UP_FILES).for_each(|file| self.session.unlink(ROOT, name(file).as_bytes()).unwrap());
        nodes.into_iter().for_each(|nodeid| self.session.forget(nodeid, 1).unwrap());
    }

    fn round(&mut self, large: &[u8]) {
        self.small_requests(large);
        self.large_requests(large);
    }

    fn small_requests(&mut self, large: &[u8]) {
        let (nodeid, fh) = (self.nodeid, self.fh);
        self.next = 0;
        assert_eq!(self.count(|session| session.lookup(ROOT, b"known").unwrap().nodeid.get()), nodeid);
        self.count(|session| session.getattr(nodeid, None).unwrap());
        assert_eq!(self.count(|session| session.read(nodeid, fh, 0, 4096).unwrap().len()), 4096);
        assert_eq!(self.count(|session| session.write(nodeid, fh, 0, &large[..4096]).unwrap()), 4096);
        let created = self.count(|session| session.create(ROOT, b"new", FLAGS, 0o600).unwrap());
        let new = created.entry.nodeid.get();
        self.count(|session| session.release(new, created.open.fh.get()).unwrap());
        self.count(|session| session.unlink(ROOT, b"new").unwrap());
        self.count(|session| session.forget(new, 1).unwrap());
        let second = self.count(|session| session.open(nodeid, FLAGS).unwrap());
        self.session.release(nodeid, second).unwrap();
        for is_plus in [false, true] {
            let directory = self.directory;
            let listed = self.count(|session| session.readdir_once(ROOT, directory, 0, 4096, is_plus).unwrap());
            assert_eq!(listed.len(), 3, "the dots and a file");
        }
        self.daemon.settle();
    }

    /// Returns what has allocated more often than it may.
    fn failures(&self, label: &str) -> Vec<String> {
        let rows = OPERATIONS.iter().zip(self.counts).zip(&self.traces);
        let too_many = rows.filter(|(((_, allowed), count), _)| *count > allowed * COUNTED_ROUNDS as u64);
        too_many
            .map(|(((name, _), count), trace)| {
                let trace = trace.as_deref().unwrap_or_default();
                format!("{label}: {COUNTED_ROUNDS} of {name} allocate {count} times, first here:\n{trace}")
            })
            .collect()
    }

    fn large_requests(&mut self, large: &[u8]) {
        let (nodeid, fh) = (self.nodeid, self.fh);
        self.count(|session| session.fallocate(nodeid, fh, 0, LARGE as u64, 0).unwrap());
        assert_eq!(self.count(|session| session.read(nodeid, fh, 0, LARGE as u32).unwrap().len()), LARGE);
        assert_eq!(self.count(|session| session.write(nodeid, fh, 0, large).unwrap()), LARGE as u32);
    }
}

#[test]
fn a_request_costs_no_allocation_and_a_new_file_one() {
    allocations::exempt_this_thread();
    let with_locks = Config { posix_lock: true, flock: true, ..Config::default() };
    let without_handles = Config { inode_file_handles: FileHandles::Never, ..Config::default() };
    let failures = [
        failures_with(Config::default(), "as configured by default"),
        failures_with(with_locks, "with locks of the host"),
        failures_with(without_handles, "without file handles"),
    ];
    let failures = failures.concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns what allocates, each time that the rounds are counted, and must not.
fn failures_with(config: Config, label: &str) -> Vec<String> {
    let large = vec![7; LARGE];
    let daemon = Daemon::start(config);
    std::fs::write(daemon.share().join("known"), &large).unwrap();
    let (_front_end, mut session) = daemon.session();
    let nodeid = session.lookup(ROOT, b"known").unwrap().nodeid.get();
    let fh = session.open(nodeid, FLAGS).unwrap();
    let directory = session.opendir(ROOT).unwrap();
    let (counts, traces) = Default::default();
    let mut guest = Guest { daemon: &daemon, session, nodeid, fh, directory, counts, traces, next: 0 };
    guest.warm_up(&large);
    let mut failures = Vec::new();
    for _ in 0..COUNTS_MAX {
        (guest.counts, guest.traces) = Default::default();
        (0..COUNTED_ROUNDS).for_each(|_| guest.round(&large));
        println!("{label}: allocations per request");
        for ((name, _), count) in OPERATIONS.iter().zip(guest.counts) {
            println!("{name:24} {:.2}", count as f64 / COUNTED_ROUNDS as f64);
        }
        failures = guest.failures(label);
        if failures.is_empty() {
            break;
        }
    }
    failures
}
