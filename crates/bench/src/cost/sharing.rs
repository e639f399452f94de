//! Which words the workers of several queues share: each worker serves a request of its own queue for a file of its
//! own, and the tracer records what it changes atomically. A lock, or a count that two of them take, is one word of
//! both.
//!
//! This counts what could be contended for, and so does not depend on the number of processors, nor on luck.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, ensure};
use transom_frontend::{FrontEnd, Options, fuse::Session};
use transom_vm::CacheMode;

use super::{
    PLACEMENT, WARM_UP,
    guest::Guest,
    operation::{Operation, Targets},
    populate,
    trace::Tracer,
    with_fixed_addresses,
};
use crate::{
    daemon::{Candidate, Daemon},
    process::on_core,
    round_trip::linux_flags,
};

/// What the workers of several queues have in common when each serves an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The operation.
    pub operation: String,
    /// Threads that served, each a queue of its own if there are as many as queues.
    pub workers: usize,
    /// Words that one worker changed atomically, on average.
    pub words: usize,
    /// Words that more than one worker changed atomically.
    pub shared: usize,
}

/// Parts into which the daemon's tables of inodes and of open files are divided. Each part has a lock, so files of
/// different parts are chosen.
const INODE_SHARDS: u64 = 32;
const FILE_SHARDS: u64 = 8;

/// Has each of `queues` queues of `candidate`, which has that many, serve each of `operations`.
pub fn measure(
    candidate: &Candidate,
    queues: u16,
    operations: &[Operation],
    parent: &Path,
) -> anyhow::Result<Vec<Sharing>> {
    ensure!(u64::from(queues) <= FILE_SHARDS, "{queues} queues; files of {FILE_SHARDS} parts can be chosen");
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    populate(shared.path())?;
    let dir = tempfile::tempdir()?;
    let placement = PLACEMENT.where_possible();
    let mut candidate = candidate.clone();
    candidate.args.extend(["--num-request-queues".to_owned(), queues.to_string()]);
    let start = || Daemon::start(&candidate, shared.path(), CacheMode::Auto, placement, dir.path());
    let daemon = with_fixed_addresses(start)??;
    let options = Options { queue_size: 256, ram_bytes: 64 << 20, ..Options::default() };
    let front_end = FrontEnd::connect(&daemon.socket, options)?;
    let mut guests = guests(&front_end, queues, shared.path())
        .with_context(|| format!("{} as the peer; it wrote: {}", candidate.name, daemon.log()))?;
    let count = |operation: &Operation| {
        on_core(placement.guest_core(), || count(&mut guests, *operation, daemon.process.id()))?
    };
    operations.iter().map(count).collect()
}

/// Returns a guest for each queue, with a file of its own open.
fn guests(front_end: &FrontEnd, queues: u16, shared: &Path) -> anyhow::Result<Vec<Guest>> {
    let mut first = Session::new(front_end.start_queue(1)?);
    first.init(linux_flags())?;
    let targets = Targets::open(&mut first)?;
    let mut files = Vec::new();
    let (mut inode_shards, mut file_shards) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..64 * u64::from(queues) {
        if files.len() == usize::from(queues) {
            break;
        }
        let name = format!("own{number}");
        fs::write(shared.join(&name), vec![0x42; 64 << 10])?;
        let nodeid = first.lookup(1, name.as_bytes())?.nodeid.get();
        if !inode_shards.insert(nodeid as u32 as u64 % INODE_SHARDS) {
            continue;
        }
        loop {
            let fh = first.open(nodeid, libc::O_RDWR as u32)?;
            if file_shards.insert(fh as u32 as u64 % FILE_SHARDS) {
                files.push((nodeid, fh));
                break;
            }
        }
    }
    ensure!(files.len() == usize::from(queues), "no files in different parts of the daemon's tables");
    let mut exchange = Some(first.exchange);
    let queue = |(number, (nodeid, fh))| {
        let queue = exchange.take().map_or_else(|| front_end.start_queue(number), Ok)?;
        Ok(Guest::new(queue, targets.with_data(nodeid, fh), 1))
    };
    (1u32..).zip(files).map(queue).collect()
}

fn count(guests: &mut [Guest], operation: Operation, daemon: u32) -> anyhow::Result<Sharing> {
    for guest in &mut *guests {
        guest.warm_up(operation, WARM_UP)?;
    }
    let mut tracer = Tracer::attach(daemon)?;
    for guest in &mut *guests {
        guest.count(operation, &mut tracer)?;
    }
    tracer.record_atomics();
    let mut of_worker: BTreeMap<i32, BTreeSet<u64>> = BTreeMap::new();
    for guest in guests {
        guest.count(operation, &mut tracer)?;
        // The daemon has other threads, which wake every few seconds.
        for (thread, words) in tracer.take_atomics().into_iter().filter(|(thread, _)| is_worker(*thread)) {
            of_worker.entry(thread).or_default().extend(words);
        }
    }
    let mut workers_of: BTreeMap<u64, usize> = BTreeMap::new();
    of_worker.values().flatten().for_each(|word| *workers_of.entry(*word).or_default() += 1);
    let shared = workers_of.values().filter(|workers| **workers > 1).count();
    let all: usize = of_worker.values().map(BTreeSet::len).sum();
    let workers = of_worker.len();
    Ok(Sharing { operation: operation.name(), workers, words: all / workers.max(1), shared })
}

/// Returns whether the thread serves queues: the vhost-user crate names those so.
fn is_worker(thread: i32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/comm")).is_ok_and(|name| name.trim() == "vring_worker")
}
