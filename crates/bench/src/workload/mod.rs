//! The workloads: timed file operations on one [`place`].
//!
//! [`run`] runs them all; [`run_in_directory`] runs inside a guest. Each submodule holds one group of workloads.
//! [`stage::Stage`] times them and reports the [`line::Line`]s that the host reads.

mod aligned;
mod blocks;
mod clock;
mod entries;
mod faults;
mod fio_jobs;
pub(crate) mod laps;
pub mod line;
mod map_how;
mod mapped;
mod mapping;
pub mod place;
pub mod scale;
mod small_files;
mod smallfile;
mod source_tree;
mod stage;
mod synced;
mod tree;
mod trees;

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};

use fio_jobs::Engine;
use line::Line;
use place::{Directory, Forget, Storage};
use stage::Stage;

/// A set of workloads that work on the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Many small files: create, stat, readdir, open, rename, unlink.
    SmallFiles,
    /// Creation and removal of directories.
    Tree,
    /// Reads and writes of 4 KiB and 1 MiB in one file.
    Blocks,
    /// Small writes, each followed by fsync.
    Synced,
    /// Reads through a mapping.
    Mapped,
    /// Whole trees: unpacked, walked, built, installed, removed.
    Trees,
    /// smallfile's six operations.
    Smallfile,
    /// fio's psync engine: four patterns by one job and by four.
    FioPsync,
    /// The same with sixteen operations of each job in flight.
    FioQueue,
    /// The same through shared mappings.
    FioMmap,
    /// Individual page faults.
    Faults,
    /// A mapping with page-table entries of 4 KiB and of 2 MiB.
    Entries,
    /// Increasing numbers of jobs.
    Jobs,
    /// Increasing numbers of files.
    Breadth,
    /// Increasing numbers of guests, each with one job.
    Guests,
}

/// The files that the workloads use, and the amount of work. Every number that affects the work is here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Groups to run.
    pub groups: Vec<Group>,
    /// The directory to work in, relative to the share; empty for its root.
    pub dir: String,
    /// Number of small files.
    pub files: u32,
    /// Number of small files in one directory.
    pub files_per_dir: u32,
    /// Bytes in each small file.
    pub file_bytes: u32,
    /// Number of directories in the tree.
    pub tree_dirs: u32,
    /// Size of the file that blocks are read from and written to, MiB.
    pub blocks_mib: u32,
    /// Number of operations of each 4 KiB workload.
    pub block_ops: u32,
    /// Passes over the file in each 1 MiB workload.
    pub large_passes: u32,
    /// Number of writes that are followed by fsync.
    pub synced_ops: u32,
    /// Number of files in a whole tree.
    pub tree_files: u32,
    /// Number of smallfile's files for each thread.
    pub smallfile_files: u32,
    /// Size of smallfile's files, in KiB.
    pub smallfile_kib: u32,
    /// Size of the file of each fio job, in MiB.
    pub fio_mib: u32,
    /// Size of the file that is mapped by entries of both sizes, in MiB.
    pub entries_mib: u32,
    /// Numbers of jobs, or of guests.
    pub jobs: Vec<u16>,
    /// Numbers of files.
    pub breadth: Vec<u32>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Idle time before each workload, in ms, so that earlier work settles.
    pub settle_ms: u64,
}

impl Group {
    /// All groups that need one guest, in the order in which they run.
    pub const ALL: [Self; 14] = [
        Self::SmallFiles,
        Self::Tree,
        Self::Blocks,
        Self::Synced,
        Self::Mapped,
        Self::Trees,
        Self::Smallfile,
        Self::FioPsync,
        Self::FioQueue,
        Self::FioMmap,
        Self::Faults,
        Self::Entries,
        Self::Jobs,
        Self::Breadth,
    ];

    /// Returns the title for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::SmallFiles => "small files",
            Self::Tree => "directories",
            Self::Blocks => "blocks",
            Self::Synced => "fsync",
            Self::Mapped => "mapped reads",
            Self::Trees => "whole trees",
            Self::Smallfile => "smallfile",
            Self::FioPsync => "fio psync",
            Self::FioQueue => "fio, a queue of 16",
            Self::FioMmap => "fio mmap",
            Self::Faults => "page faults",
            Self::Entries => "page-table entries",
            Self::Jobs => "1 to 16 jobs",
            Self::Breadth => "very many files",
            Self::Guests => "1 to 8 guests",
        }
    }

    /// Returns whether the group maps files.
    pub fn is_mapping(self) -> bool {
        matches!(self, Self::Mapped | Self::FioMmap | Self::Faults | Self::Entries)
    }
}

impl Default for Params {
    /// Returns sizes that take a few seconds for each group on a slow guest.
    fn default() -> Self {
        Self {
            groups: Group::ALL.to_vec(),
            dir: String::new(),
            files: 1000,
            files_per_dir: 250,
            file_bytes: 4096,
            tree_dirs: 500,
            blocks_mib: 64,
            block_ops: 8192,
            large_passes: 4,
            synced_ops: 1000,
            tree_files: 2500,
            smallfile_files: 64,
            smallfile_kib: 64,
            fio_mib: 32,
            entries_mib: 128,
            jobs: vec![1, 2, 4, 8, 16],
            breadth: vec![1000, 10_000, 100_000],
            seed: 0x74_7261_6e73_6f6d,
            settle_ms: 10,
        }
    }
}

impl Params {
    /// Returns minimal sizes, for a run that only shows that everything works.
    pub fn smoke() -> Self {
        Self {
            files: 16,
            files_per_dir: 8,
            tree_dirs: 12,
            blocks_mib: 1,
            block_ops: 64,
            large_passes: 1,
            synced_ops: 8,
            tree_files: 40,
            smallfile_files: 2,
            smallfile_kib: 4,
            fio_mib: 1,
            entries_mib: 1,
            jobs: vec![1, 3],
            breadth: vec![20],
            seed: 1,
            settle_ms: 0,
            ..Self::default()
        }
    }

    /// Returns the number of workloads that a run reports.
    pub fn workload_count(&self) -> usize {
        self.groups.iter().map(|group| self.workloads_of(*group)).sum()
    }

    fn workloads_of(&self, group: Group) -> usize {
        match group {
            Group::SmallFiles => small_files::COUNT,
            Group::Tree => tree::COUNT,
            Group::Blocks => blocks::COUNT,
            Group::Synced => synced::COUNT,
            Group::Mapped => mapped::COUNT,
            Group::Trees => trees::COUNT,
            Group::Smallfile => smallfile::COUNT,
            Group::FioPsync | Group::FioQueue | Group::FioMmap => fio_jobs::COUNT,
            Group::Faults => faults::COUNT,
            Group::Entries => entries::COUNT,
            Group::Jobs | Group::Guests => self.jobs.len() * scale::COUNT_PER_JOBS,
            Group::Breadth => self.breadth.len(),
        }
    }
}

/// Runs the workloads of `params` at `place`. Reports a line for the begin and one for the result of each. Removes what
/// it creates, unless it is stopped.
///
/// # Errors
/// If something outside the workloads fails, or `is_stopped` was set. A workload's own failure is a line.
pub fn run(
    place: &dyn Storage,
    params: &Params,
    is_stopped: &AtomicBool,
    say: &mut dyn FnMut(Line) -> io::Result<()>,
) -> io::Result<()> {
    let mut stage = Stage::new(place, params.clone(), is_stopped, say);
    if !params.dir.is_empty() {
        place.create_dir_all(&params.dir)?;
    }
    for group in &params.groups {
        match group {
            Group::SmallFiles => small_files::run(&mut stage)?,
            Group::Tree => tree::run(&mut stage)?,
            Group::Blocks => blocks::run(&mut stage)?,
            Group::Synced => synced::run(&mut stage)?,
            Group::Mapped => mapped::run(&mut stage)?,
            Group::Trees => trees::run(&mut stage)?,
            Group::Smallfile => smallfile::run(&mut stage)?,
            Group::FioPsync => fio_jobs::run(&mut stage, Engine::Psync)?,
            Group::FioQueue => fio_jobs::run(&mut stage, Engine::Queue)?,
            Group::FioMmap => fio_jobs::run(&mut stage, Engine::Mmap)?,
            Group::Faults => faults::run(&mut stage)?,
            Group::Entries => entries::run(&mut stage)?,
            Group::Jobs => scale::jobs(&mut stage, "jobs")?,
            Group::Breadth => scale::breadth(&mut stage)?,
            Group::Guests => scale::jobs(&mut stage, "guests")?,
        }
    }
    if !params.dir.is_empty() {
        place.remove_dir(&params.dir)?;
    }
    stage.end()
}

/// Runs the workloads in a directory and writes the lines to `out` as JSON. Used inside a guest.
pub fn run_in_directory(dir: &Path, params: &Params, forget: Forget, mut out: impl io::Write) -> io::Result<()> {
    run(&Directory::new(dir, forget), params, &AtomicBool::new(false), &mut |line| {
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        out.write_all(&text)?;
        out.flush()
    })
}

/// Creates the files that [`Group::Breadth`] looks up, on the host, below the shared directory. Takes ten seconds for a
/// million on a file system in memory.
///
/// # Errors
/// If the file system fails, or `is_stopped` was set.
pub fn make_many(shared: &Path, params: &Params, is_stopped: &AtomicBool) -> io::Result<()> {
    let count = params.breadth.iter().copied().max().filter(|_| params.groups.contains(&Group::Breadth)).unwrap_or(0);
    let mut made = None;
    for number in 0..count {
        let path = shared.join(scale::file_among_many(scale::MANY, number));
        let dir = path.parent().map(Path::to_owned);
        if made != dir {
            if is_stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            dir.iter().try_for_each(std::fs::create_dir_all)?;
            made = dir;
        }
        std::fs::File::create(path)?;
    }
    Ok(())
}
