//! The workloads: file operations on one directory, timed, one JSON line each.
//!
//! [`run`] is the whole of it and is what runs inside a guest. A file beside this one holds one group of workloads;
//! [`stage::Stage`] times them and writes the [`line::Line`]s that the host reads.

mod aligned;
mod blocks;
mod clock;
mod laps;
pub mod line;
mod mapped;
mod mapping;
mod small_files;
mod stage;
mod synced;
mod tree;

use std::{io, path::PathBuf};

use serde::{Deserialize, Serialize};

use stage::Stage;

/// A set of workloads that share what they work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Many small files: create, stat, readdir, open, rename, unlink.
    SmallFiles,
    /// Directories made and removed.
    Tree,
    /// Reads and writes of 4 KiB and 1 MiB in one file.
    Blocks,
    /// Small writes, each followed by fsync.
    Synced,
    /// Reads through a mapping.
    Mapped,
}

/// What the workloads work on, and how much of it. Every number that decides about the work is here.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct Params {
    /// Number of small files.
    #[arg(long, default_value_t = 2000)]
    pub files: u32,
    /// Small files in one directory.
    #[arg(long, default_value_t = 500)]
    pub files_per_dir: u32,
    /// Bytes in each small file.
    #[arg(long, default_value_t = 4096)]
    pub file_bytes: u32,
    /// Directories of the tree.
    #[arg(long, default_value_t = 1000)]
    pub tree_dirs: u32,
    /// Size of the file that blocks are read from and written to, MiB.
    #[arg(long, default_value_t = 128)]
    pub blocks_mib: u32,
    /// Operations of each 4 KiB workload.
    #[arg(long, default_value_t = 16384)]
    pub block_ops: u32,
    /// Passes over the file in each 1 MiB workload.
    #[arg(long, default_value_t = 4)]
    pub large_passes: u32,
    /// Writes that are followed by fsync.
    #[arg(long, default_value_t = 2000)]
    pub synced_ops: u32,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 0x7472_616e_736f_6d)]
    pub seed: u64,
    /// Idle time before each workload, so that what came before has settled, ms.
    #[arg(long, default_value_t = 20)]
    pub settle_ms: u64,
    /// Empty the kernel's caches before the workloads called cold; without it they find what is there.
    #[arg(long)]
    pub drop_caches: bool,
    /// Groups to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Group::ALL)]
    pub groups: Vec<Group>,
}

impl Group {
    /// All groups, in the order of running.
    pub const ALL: [Self; 5] = [Self::SmallFiles, Self::Tree, Self::Blocks, Self::Synced, Self::Mapped];
}

impl Params {
    /// Sizes for a run that only shows that everything works.
    pub fn smoke() -> Self {
        Self {
            files: 40,
            files_per_dir: 20,
            file_bytes: 4096,
            tree_dirs: 30,
            blocks_mib: 2,
            block_ops: 64,
            large_passes: 1,
            synced_ops: 8,
            seed: 1,
            settle_ms: 0,
            drop_caches: false,
            groups: Group::ALL.to_vec(),
        }
    }

    /// The same as command line words.
    pub fn to_args(&self) -> Vec<String> {
        let groups: Vec<_> = self.groups.iter().filter_map(clap::ValueEnum::to_possible_value).collect();
        let groups: Vec<_> = groups.iter().map(clap::builder::PossibleValue::get_name).collect();
        let mut args = vec![
            format!("--files={}", self.files),
            format!("--files-per-dir={}", self.files_per_dir),
            format!("--file-bytes={}", self.file_bytes),
            format!("--tree-dirs={}", self.tree_dirs),
            format!("--blocks-mib={}", self.blocks_mib),
            format!("--block-ops={}", self.block_ops),
            format!("--large-passes={}", self.large_passes),
            format!("--synced-ops={}", self.synced_ops),
            format!("--seed={}", self.seed),
            format!("--settle-ms={}", self.settle_ms),
            format!("--groups={}", groups.join(",")),
        ];
        if self.drop_caches {
            args.push("--drop-caches".into());
        }
        args
    }

    /// How many workloads a run reports.
    pub fn workload_count(&self) -> usize {
        self.groups.iter().map(|group| group.workload_count()).sum()
    }
}

impl Group {
    fn workload_count(self) -> usize {
        match self {
            Self::SmallFiles => small_files::COUNT,
            Self::Tree => tree::COUNT,
            Self::Blocks => blocks::COUNT,
            Self::Synced => synced::COUNT,
            Self::Mapped => mapped::COUNT,
        }
    }
}

/// Runs the workloads of `params` in `dir`, which must exist, and writes one line for the begin and one for the
/// result of each to `out`. What it creates in `dir` it removes.
///
/// Errors: what is needed around the workloads fails; a workload's own failure is a line.
pub fn run(dir: PathBuf, params: Params, out: impl io::Write) -> io::Result<()> {
    let groups = params.groups.clone();
    let mut stage = Stage::new(dir, params, out);
    for group in groups {
        match group {
            Group::SmallFiles => small_files::run(&mut stage)?,
            Group::Tree => tree::run(&mut stage)?,
            Group::Blocks => blocks::run(&mut stage)?,
            Group::Synced => synced::run(&mut stage)?,
            Group::Mapped => mapped::run(&mut stage)?,
        }
    }
    stage.end()
}
