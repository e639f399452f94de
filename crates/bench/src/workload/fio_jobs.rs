//! fio's jobs of the measurements that first compared DAX, reimplemented: 4 KiB operations in one file for each job, by
//! system calls one at a time or sixteen at a time, and through a shared mapping.

use std::io;

use super::{
    aligned::{AlignedBuffer, PAGE_BYTES},
    blocks::fill,
    map_how::MapHow,
    mapping::Mapping,
    place::{How, Opened, Storage},
    stage::Stage,
};

/// Numbers of jobs at once.
const JOBS: [u16; 2] = [1, 4];
const PATTERNS: [Pattern; 4] = [
    Pattern { name: "read", is_write: false, is_random: false },
    Pattern { name: "randread", is_write: false, is_random: true },
    Pattern { name: "write", is_write: true, is_random: false },
    Pattern { name: "randwrite", is_write: true, is_random: true },
];

pub(super) const COUNT: usize = JOBS.len() * PATTERNS.len();

/// Operations in flight of each job of [`Engine::Queue`].
pub(super) const QUEUE_LEN: u16 = 16;

#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    is_write: bool,
    is_random: bool,
}

/// How a job reads and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// pread(2) and pwrite(2).
    Psync,
    /// The same by [`QUEUE_LEN`] threads, because not every guest has an asynchronous interface.
    Queue,
    /// Loads and stores in a shared mapping.
    Mmap,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Queue => "queue",
            Self::Mmap => "mmap",
        }
    }
}

pub(super) fn run(stage: &mut Stage<'_>, engine: Engine) -> io::Result<()> {
    let top = stage.path("fio");
    stage.place().create_dir_all(&top)?;
    let len_bytes = u64::from(stage.params.fio_mib) << 20;
    for job in 0..JOBS.into_iter().max().unwrap_or(1) {
        fill(stage.place(), &format!("{top}/{job}"), len_bytes)?;
    }
    let (ops, seed) = (stage.params.block_ops as usize, stage.params.seed);
    for jobs in JOBS {
        for pattern in PATTERNS {
            let name = format!("fio {} {} x{jobs}", engine.name(), pattern.name);
            let lanes = if engine == Engine::Queue { QUEUE_LEN } else { 1 };
            let prepare = |place: &dyn Storage, thread: u16| {
                let (path, lane) = (format!("{top}/{}", thread / lanes), u64::from(thread % lanes));
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(thread)));
                let blocks = len_bytes / PAGE_BYTES as u64;
                let lanes = u64::from(lanes);
                let block = |n: u64| if pattern.is_random { random.u64(..blocks) } else { (n * lanes + lane) % blocks };
                let each = ops as u64 / u64::from(jobs) / lanes;
                let offsets = (0..each.max(1)).map(block).map(|n| n * PAGE_BYTES as u64).collect();
                let mapping = match engine {
                    Engine::Psync | Engine::Queue => None,
                    Engine::Mmap => Some(place.map(&path, len_bytes as usize, MapHow::SHARED)?),
                };
                Ok(Job { path, offsets, mapping, buffer: AlignedBuffer::new(PAGE_BYTES, 0x3c) })
            };
            stage.measure_jobs(&name, jobs * lanes, prepare, |place, job, laps| {
                let how = if pattern.is_write { How::WRITE } else { How::READ };
                let file = match job.mapping {
                    None => Some(place.open(&job.path, how)?),
                    Some(_) => None,
                };
                for at in 0..job.offsets.len() {
                    job.once(file.as_deref(), pattern.is_write, at)?;
                    laps.lap(PAGE_BYTES);
                }
                Ok(())
            })?;
        }
    }
    stage.place().remove_dir_all(&top)
}

/// The data of one thread.
struct Job {
    path: String,
    offsets: Vec<u64>,
    mapping: Option<Mapping>,
    buffer: AlignedBuffer,
}

impl Job {
    fn once(&mut self, file: Option<&(dyn Opened + '_)>, is_write: bool, at: usize) -> io::Result<()> {
        let offset = self.offsets[at];
        match (file, &self.mapping, is_write) {
            (Some(file), _, false) => file.read_exact_at(self.buffer.bytes_mut(), offset)?,
            (Some(file), _, true) => file.write_all_at(self.buffer.bytes(), offset)?,
            (None, Some(mapping), false) => mapping.copy_to(offset as usize, self.buffer.bytes_mut()),
            (None, Some(mapping), true) => mapping.copy_from(offset as usize, self.buffer.bytes()),
            (None, None, _) => return Err(io::Error::other("neither a file nor a mapping")),
        }
        Ok(())
    }
}
