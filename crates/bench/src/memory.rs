//! Measures the memory of a daemon that holds many inodes: LOOKUPs of many files, then FORGET for all of them.
//!
//! A driver sends the requests, because a guest would need as much memory again for its own inodes.

use std::{
    cell::Cell,
    collections::VecDeque,
    fs::{self, File},
    path::Path,
    time::Instant,
};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use transom_frontend::{FrontEnd, Options, fuse::Session};
use transom_vm::CacheMode;
use transom_wire::{
    Opcode,
    attr::EntryOut,
    ops::forget::{BatchForgetIn, ForgetOne},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    daemon::{Candidate, Daemon},
    process::{Memory, Placement, field, on_core},
    progress,
    report::Facts,
    round_trip::{
        driver::{Driver, Waiting},
        linux_flags,
        script::{Request, Requests, Shape},
    },
};

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The command line of the measurement.
    pub command: Vec<String>,
    /// Where and when.
    pub facts: Facts,
    /// One for each daemon and round.
    pub samples: Vec<MemorySample>,
}

/// One daemon's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemorySample {
    /// The daemon.
    pub daemon: String,
    /// Its version.
    pub version: String,
    /// Its arguments, without those that every daemon got.
    pub args: Vec<String>,
    /// The round.
    pub repetition: u32,
    /// Number of files that were looked up.
    pub inodes: u32,
    /// The measurement; `None` if the daemon failed.
    pub measure: Option<MemoryMeasure>,
    /// Why the daemon failed.
    pub refusal: Option<String>,
}

/// Memory at three points in time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemoryMeasure {
    /// Before the first LOOKUP.
    pub before: Memory,
    /// After the last one.
    pub after: Memory,
    /// After FORGET for each.
    pub forgotten: Memory,
    /// Growth of the kernel's own tables, mainly for descriptors, from the first point to the last, in KiB.
    pub kernel_slab_kib: i64,
    /// LOOKUPs per second.
    pub lookups_per_s: f64,
}

/// Files in one directory.
const FILES_PER_DIR: u32 = 10_000;
/// Requests in flight at once.
const DEPTH: u16 = 16;
/// Number of inodes in one BATCH_FORGET; Linux sends as many as fit in a page.
const FORGET_BATCH: usize = 200;
const ROOT: u64 = 1;

/// Creates `inodes` files below `dir`; all daemons serve the same tree.
pub fn populate(dir: &Path, inodes: u32) -> anyhow::Result<()> {
    let bar = progress::bar(u64::from(inodes));
    bar.set_message("making files");
    for number in 0..inodes {
        let (dir_number, file_number) = (number / FILES_PER_DIR, number % FILES_PER_DIR);
        let dir = dir.join(format!("d{dir_number}"));
        if file_number == 0 {
            fs::create_dir(&dir)?;
        }
        File::create(dir.join(format!("f{file_number}")))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Raises the descriptor limit of this process, and of the daemons that it starts, to the maximum: a daemon that keeps
/// a descriptor for each inode needs that. Without privileges, the limit is unchanged.
pub fn raise_descriptor_limit() {
    let allowed = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let current = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: allowed.or(current.maximum), maximum: allowed.or(current.maximum) };
    if setrlimit(Resource::Nofile, limit).is_err() {
        eprintln!("transom-bench: the limit on open descriptors stays at {:?}", current.maximum);
    }
}

/// Looks up all files of `shared`, which [`populate`] created, through `candidate`.
pub fn measure(candidate: &Candidate, shared: &Path, inodes: u32, repetition: u32) -> anyhow::Result<MemorySample> {
    let dir = tempfile::tempdir()?;
    let placement = Placement::SameCore;
    let daemon = Daemon::start(candidate, shared, CacheMode::Auto, placement, dir.path())?;
    let pid = daemon.process.id();
    let look = || -> anyhow::Result<MemoryMeasure> {
        let front_end = FrontEnd::connect(&daemon.socket, Options { ram_bytes: 32 << 20, ..Options::default() })?;
        let mut session = Session::new(front_end.start_queue(1)?);
        session.init(linux_flags())?;
        let dirs: Vec<u64> = (0..inodes.div_ceil(FILES_PER_DIR))
            .map(|number| Ok(session.lookup(ROOT, format!("d{number}").as_bytes())?.nodeid.get()))
            .collect::<anyhow::Result<_>>()?;
        let mut driver = Driver::new(front_end, session.exchange, Waiting::Sleep);
        let shape = Shape { data_in: 0, data_out: 0 };

        let before = Memory::of(pid);
        let slab_before_kib = slab_kib();
        let begun = Instant::now();
        let next = Cell::new(0);
        let mut walks: Vec<_> = (0..DEPTH).map(|_| Walk { dirs: &dirs, next: &next, found: Vec::new() }).collect();
        driver.run(&mut walks, shape, inodes, None)?;
        let lookups_per_s = f64::from(inodes) / begun.elapsed().as_secs_f64();
        let after = Memory::of(pid);
        let kernel_slab_kib = slab_kib() as i64 - slab_before_kib as i64;

        let nodeids = walks.into_iter().flat_map(|walk| walk.found).collect::<Vec<_>>();
        let batches = nodeids.len().div_ceil(FORGET_BATCH) as u32;
        let forgetting = Forgetting { batches: nodeids.chunks(FORGET_BATCH).map(<[u64]>::to_vec).collect() };
        driver.run(&mut [forgetting], shape, batches, None)?;
        Ok(MemoryMeasure { before, after, forgotten: Memory::of(pid), kernel_slab_kib, lookups_per_s })
    };
    let result = on_core(placement.guest_core(), look)?;
    Ok(MemorySample {
        daemon: candidate.name.clone(),
        version: candidate.version(),
        args: candidate.args.clone(),
        repetition,
        inodes,
        measure: result.as_ref().ok().copied(),
        refusal: result.err().map(|error| format!("{error:#}")),
    })
}

/// Returns the memory that the kernel has allocated for its own objects.
fn slab_kib() -> u64 {
    field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "Slab")
}

/// Sends LOOKUP for the remaining files.
struct Walk<'a> {
    dirs: &'a [u64],
    /// The number of the next file, shared by all walks.
    next: &'a Cell<u32>,
    found: Vec<u64>,
}

impl Requests for Walk<'_> {
    fn next(&mut self, reply: &[u8]) -> Request {
        self.end(reply);
        let number = self.next.replace(self.next.get() + 1);
        let parent = self.dirs[(number / FILES_PER_DIR) as usize];
        let name = format!("f{}\0", number % FILES_PER_DIR).into_bytes();
        Request::new(Opcode::Lookup, parent, name, size_of::<EntryOut>())
    }

    fn end(&mut self, reply: &[u8]) {
        if let Ok((entry, _)) = EntryOut::read_from_prefix(reply) {
            self.found.push(entry.nodeid.get());
        }
    }
}

/// Sends a sequence of BATCH_FORGET.
struct Forgetting {
    batches: VecDeque<Vec<u64>>,
}

impl Requests for Forgetting {
    fn next(&mut self, _reply: &[u8]) -> Request {
        let batch = self.batches.pop_front().unwrap_or_default();
        let head = BatchForgetIn { count: (batch.len() as u32).into(), dummy: 0.into() };
        let ones: Vec<ForgetOne> =
            batch.iter().map(|&nodeid| ForgetOne { nodeid: nodeid.into(), nlookup: 1.into() }).collect();
        let args = [head.as_bytes(), ones.as_bytes()].concat();
        Request { is_answered: false, ..Request::new(Opcode::BatchForget, 0, args, 0) }
    }

    fn end(&mut self, _reply: &[u8]) {}
}

/// Renders the table of `report`.
pub fn markdown(report: &MemoryReport) -> String {
    let facts = &report.facts;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "daemon",
        "before, MiB",
        "after, MiB",
        "bytes per inode",
        "peak, MiB",
        "after FORGET, MiB",
        "descriptors",
        "kernel slab, MiB",
        "LOOKUP/s",
    ]);
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let mut gave_up = String::new();
    for sample in &report.samples {
        let name = format!("{} {}", sample.daemon, sample.args.join(" ")).trim().to_owned();
        let Some(measure) = &sample.measure else {
            let reason = sample.refusal.as_deref().unwrap_or("no reason");
            gave_up.push_str(&format!("- {name} gave up: {}\n", reason.lines().next().unwrap_or(reason)));
            table.add_row([name, "gave up".to_owned()]);
            continue;
        };
        let MemoryMeasure { before, after, forgotten, kernel_slab_kib, lookups_per_s } = measure;
        let grown_kib = after.rss_kib.saturating_sub(before.rss_kib);
        table.add_row([
            name,
            mib(before.rss_kib),
            mib(after.rss_kib),
            format!("{:.0}", grown_kib as f64 * 1024.0 / f64::from(sample.inodes)),
            mib(after.rss_peak_kib),
            mib(forgotten.rss_kib),
            format!("{} → {} → {}", before.descriptors, after.descriptors, forgotten.descriptors),
            format!("{:+.0}", *kernel_slab_kib as f64 / 1024.0),
            format!("{lookups_per_s:.0}"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let inodes = report.samples.first().map_or(0, |sample| sample.inodes);
    let versions: Vec<_> =
        report.samples.iter().filter(|sample| sample.repetition == 0).map(|sample| sample.version.as_str()).collect();
    format!(
        "# Memory of the daemon after {inodes} inodes\n\n    {}\n\n- {}, {} cores of {}, {} MiB, Linux {}; shared: {}\n\
         - {}\n\n{table}\n\n{gave_up}\nMemory is what is resident (VmRSS, peak VmHWM) of all \
         processes of the daemon. The kernel's own memory \
         (descriptors, file handles, cached names and inodes) grows beside it; it is measured for the whole machine.\n",
        report.command.join(" "),
        facts.date,
        facts.cores,
        facts.processor,
        facts.memory_mib,
        facts.kernel,
        facts.shared_file_system,
        versions.join(", "),
    )
}
