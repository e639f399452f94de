//! After warming up, the guest library allocates no heap memory for a request, from the session to the used entry and
//! back.
//!
//! The driver uses a fake device in this process, whose threads serve a file system in memory. Allocations of these
//! threads are not counted, those of any other thread are. There is one test because the count is per process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

#[allow(dead_code, reason = "shared with the tests of the device")]
#[path = "../device/fake.rs"]
mod fake;
#[allow(dead_code, reason = "shared with the tests of the device")]
#[path = "../device/memory.rs"]
mod memory;
#[allow(dead_code, reason = "shared with the tests of the device")]
#[path = "../device/platform.rs"]
mod platform;

use std::{sync::Arc, thread};

use transom_allocations::{self as allocations, CountingAllocator};
use transom_conformance::memfs::MemFs;
use transom_guest::{
    cache::{CacheMode, CacheOptions},
    channel::{Channel, Sink, Source},
    device::Settings,
    session::{Caller, Session, SessionConfig},
    volume::Volume,
};
use transom_host::server::{BlockingMode, GuestSlice, Scratch, ServeOutcome, Server};
use transom_wire::{Name, NodeId, ops::write::WriteFlags};

use fake::{ALL, Chain, Fake};
use platform::{SLEEPING, Threads, device};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Rounds of all operations before counting starts: tables have grown, and several batches of forgets were sent.
const WARM_UP_ROUNDS: usize = 500;
const COUNTED_ROUNDS: usize = 200;

/// What a volume allocates for a new file: an inode and an open file, each in its own reference count.
const CREATES_AN_INODE: [(&str, u64); 1] = [("CREATE", 2)];

const CALLER: Caller<'static> =
    Caller { uid: 0, gid: 0, pid: 1, group: None, umask: 0o022, queue: 0, interrupt: None, raised: None };
const O_RDWR: u32 = 2;
const LARGE: usize = 64 << 10;

/// Counts by name of the operation, with the backtrace of its first allocation.
#[derive(Default)]
struct Counts(Vec<(&'static str, u64, Option<String>)>);

impl Counts {
    /// Runs one operation and counts its allocations. The calling thread is counted only inside `work`.
    fn count<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let place = self.0.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
            self.0.push((name, 0, None));
            self.0.len() - 1
        });
        let before = allocations::count();
        if self.0[place].2.is_none() {
            allocations::trace_next();
        }
        let outcome = allocations::with_exempt(false, work);
        let trace = allocations::take_trace();
        let (_, count, first) = &mut self.0[place];
        *count += allocations::count() - before;
        *first = first.take().or(trace);
        outcome
    }

    fn report(&self, label: &str) {
        println!("{label}: allocations per operation");
        for (name, count, _) in &self.0 {
            println!("{name:24} {:.2}", *count as f64 / COUNTED_ROUNDS as f64);
        }
    }

    /// Asserts that operations outside `allowed` allocate nothing, and those in it at most as often as it says.
    fn assert_at_most(&self, allowed: &[(&str, u64)], label: &str) {
        for (name, count, trace) in &self.0 {
            let each = allowed.iter().find(|(known, _)| known == name).map_or(0, |(_, each)| *each);
            let trace = trace.as_deref().unwrap_or("no trace");
            assert!(*count <= each * COUNTED_ROUNDS as u64, "{label}: {name} allocates {count} times:\n{trace}");
        }
    }
}

#[test]
fn a_request_costs_no_allocation() {
    allocations::exempt_this_thread();
    let polling = Settings { poll_max_ns: 50_000, pollers_max: 4, ..SLEEPING };
    for (settings, label) in [(SLEEPING, "session, sleeping"), (polling, "session, polling")] {
        let counts = with_session(settings, |session| rounds(|counts| session_round(&session, counts)));
        counts.report(label);
        counts.assert_at_most(&[], label);
    }
    for mode in [CacheMode::None, CacheMode::Auto] {
        let label = format!("volume, {mode:?}");
        let counts = with_session(SLEEPING, |session| {
            let volume = Volume::new(session, CacheOptions { mode, ..CacheOptions::default() });
            rounds(|counts| volume_round(&volume, counts))
        });
        counts.report(&label);
        counts.assert_at_most(&CREATES_AN_INODE, &label);
    }
}

fn rounds(mut round: impl FnMut(&mut Counts)) -> Counts {
    let mut warm_up = Counts::default();
    (0..WARM_UP_ROUNDS).for_each(|_| round(&mut warm_up));
    let mut counts = Counts::default();
    (0..COUNTED_ROUNDS).for_each(|_| round(&mut counts));
    counts
}

fn session_round(session: &Session<Threads>, counts: &mut Counts) {
    let (root, known, new) = (NodeId::ROOT, name("known"), name("new"));
    let (mut bytes, mut large) = ([7; 4096], vec![7; LARGE]);
    let (entry, open) = match session.lookup(&CALLER, root, known) {
        Ok(entry) if entry.nodeid.get() != 0 => {
            let node = entry.nodeid.into();
            (entry, session.open(&CALLER, node, O_RDWR).unwrap())
        }
        _ => session.create(&CALLER, root, known, 0o600, O_RDWR).unwrap(),
    };
    let (node, fh) = (entry.nodeid.into(), open.fh.into());
    let none = WriteFlags::empty();
    counts.count("LOOKUP", || session.lookup(&CALLER, root, known)).unwrap();
    counts.count("GETATTR", || session.getattr(&CALLER, node, None)).unwrap();
    let source = Source::Bytes(&bytes);
    counts.count("WRITE 4 KiB", || session.write(&CALLER, node, fh, O_RDWR, none, 0, source)).unwrap();
    let source = Source::Bytes(&large);
    counts.count("WRITE 64 KiB", || session.write(&CALLER, node, fh, O_RDWR, none, 0, source)).unwrap();
    let sink = Sink::Bytes(&mut bytes);
    assert_eq!(counts.count("READ 4 KiB", || session.read(&CALLER, node, fh, O_RDWR, 0, sink)).unwrap(), 4096);
    let sink = Sink::Bytes(&mut large);
    assert_eq!(counts.count("READ 64 KiB", || session.read(&CALLER, node, fh, O_RDWR, 0, sink)).unwrap(), LARGE);
    let created = counts.count("CREATE", || session.create(&CALLER, root, new, 0o600, O_RDWR)).unwrap();
    let (new_node, new_fh) = (created.0.nodeid.into(), created.1.fh.into());
    counts.count("RELEASE", || session.release(&CALLER, new_node, new_fh, O_RDWR, 0, 0)).unwrap();
    counts.count("UNLINK", || session.unlink(&CALLER, root, new)).unwrap();
    counts.count("FORGET", || session.forget(new_node, 1));
    counts.count("FORGET", || session.forget(node, 2));
    session.release(&CALLER, node, fh, O_RDWR, 0, 0).unwrap();
}

fn volume_round(volume: &Volume<Threads>, counts: &mut Counts) {
    let (root, known, new) = (volume.root(), name("known"), name("new"));
    let mut bytes = [7; 4096];
    let file = match volume.lookup(&CALLER, root, known) {
        Ok(inode) => volume.open(&CALLER, &inode, O_RDWR).unwrap(),
        Err(_) => volume.create(&CALLER, root, known, 0o600, O_RDWR).unwrap(),
    };
    let inode = counts.count("LOOKUP", || volume.lookup(&CALLER, root, known)).unwrap();
    counts.count("GETATTR", || volume.getattr(&CALLER, &inode)).unwrap();
    counts.count("WRITE 4 KiB", || file.write_at(&CALLER, 0, &bytes)).unwrap();
    assert_eq!(counts.count("READ 4 KiB", || file.read_at(&CALLER, 0, &mut bytes)).unwrap(), 4096);
    let created = counts.count("CREATE", || volume.create(&CALLER, root, new, 0o600, O_RDWR)).unwrap();
    counts.count("RELEASE", || drop(created));
    counts.count("UNLINK", || volume.unlink(&CALLER, root, new)).unwrap();
}

fn name(bytes: &str) -> Name<'_> {
    Name::new(bytes.as_bytes()).unwrap()
}

/// Runs `work` with a session on a device that threads of this process serve, and ends the session.
fn with_session<T>(settings: Settings, work: impl FnOnce(Session<Threads>) -> T) -> T {
    let fake = Arc::new(Fake::new(ALL, 1, 128));
    let server = Arc::new(Server::new(MemFs::default()));
    let device = Arc::new(device(&fake, settings));
    let threads: Vec<_> = (0..2)
        .map(|queue| {
            let (fake, server) = (Arc::clone(&fake), Arc::clone(&server));
            thread::spawn(move || {
                allocations::exempt_this_thread();
                fake.serve(queue, |chain| answer(&server, chain));
            })
        })
        .collect();
    let channel: Arc<dyn Channel> = device.clone();
    let outcome = work(Session::begin(channel, Arc::new(Threads), SessionConfig::default()).unwrap());
    drop(device);
    fake.vanish();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    outcome
}

fn answer(server: &Server<MemFs>, chain: &Chain) -> Vec<u8> {
    let (mut sent, mut reply) = (chain.sent(), vec![0; chain.room()]);
    let readable = [GuestSlice::from(sent.as_mut_slice())];
    let outcome = {
        let writable = [GuestSlice::from(reply.as_mut_slice())];
        server.handle(&readable, &writable, &mut Scratch::default(), BlockingMode::MayBlock)
    };
    match outcome {
        ServeOutcome::Done(done) => reply.truncate(done.used_len_bytes as usize),
        ServeOutcome::Defer(target) => panic!("deferred to {target:?} though it may block"),
    }
    reply
}
