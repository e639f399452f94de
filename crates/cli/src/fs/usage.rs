//! `du` and `df`.

use std::{
    collections::HashSet,
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;

use super::{DEPTH_MAX, Task, share::Stat, text::for_stdout};
use crate::tell::path_in_line;

/// Add up the disk space that files use
///
/// A file with several hard links is counted once.
#[derive(Debug, Args)]
pub(super) struct Du {
    /// Paths to start from
    #[arg(default_value = "/", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print only the sum of each PATH, not of the directories below it
    #[arg(long, short = 's')]
    summarize: bool,

    /// Add up lengths instead of allocated space
    #[arg(long)]
    apparent: bool,

    /// Print sizes with a unit instead of in bytes
    #[arg(long, short = 'H')]
    human: bool,
}

/// Show the size and free space of the share's file system
#[derive(Debug, Args)]
pub(super) struct Df {
    /// A path on the file system
    #[arg(default_value = "/", value_name = "PATH")]
    path: PathBuf,
}

impl Du {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        // Inodes with several links that were already counted.
        let mut counted = HashSet::new();
        task.each(&self.paths, |task, path| {
            let stat = task.share.stat(path, false)?;
            let sum = self.sum(task, path, &stat, &mut counted, 0)?;
            if self.summarize || !stat.is_directory() { self.print(path, sum) } else { Ok(()) }
        })
    }

    fn sum(&self, task: &mut Task, path: &Path, stat: &Stat, counted: &mut HashSet<u64>, depth: usize) -> Result<u64> {
        let own = if self.apparent { stat.size } else { stat.blocks.saturating_mul(512) };
        if !stat.is_directory() {
            let is_new = stat.nlink < 2 || counted.insert(stat.ino);
            return Ok(if is_new { own } else { 0 });
        }
        let mut sum = own;
        let names = if depth < DEPTH_MAX { task.share.names(path)? } else { Vec::new() };
        for name in names {
            task.check_interrupted()?;
            let path = path.join(OsStr::from_bytes(&name));
            let added = match task.share.stat(&path, false) {
                Ok(stat) => self.sum(task, &path, &stat, counted, depth + 1),
                Err(error) => Err(error.into()),
            };
            match added {
                Ok(added) => sum = sum.saturating_add(added),
                Err(error) if error.is::<super::Interrupted>() || super::is_broken_pipe(&error) => return Err(error),
                Err(error) => task.fail(&error.context(path_in_line(&path))),
            }
        }
        if !self.summarize {
            self.print(path, sum)?;
        }
        Ok(sum)
    }

    fn print(&self, path: &Path, sum: u64) -> Result<()> {
        let mut out = io::stdout().lock();
        let sum = if self.human { transom_size::short(sum) } else { sum.to_string() };
        write!(out, "{sum}\t")?;
        out.write_all(&for_stdout(path.as_os_str().as_bytes()))?;
        Ok(writeln!(out)?)
    }
}

impl Df {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(std::slice::from_ref(&self.path), |task, path| {
            let space = task.share.space(path)?;
            let bytes = |blocks: u64| transom_size::short(blocks.saturating_mul(space.block_size));
            let used = space.blocks.saturating_sub(space.free);
            let percent = (used as f64 / space.blocks.max(1) as f64 * 100.0).ceil();
            let mut out = io::stdout().lock();
            writeln!(
                out,
                "{:>6} {:>6} {:>9} {:>5} {:>12} {:>12}",
                "size", "used", "available", "use", "inodes", "free"
            )?;
            writeln!(
                out,
                "{:>6} {:>6} {:>9} {percent:>4}% {:>12} {:>12}",
                bytes(space.blocks),
                bytes(used),
                bytes(space.available),
                space.inodes,
                space.inodes_free
            )?;
            Ok(())
        })
    }
}
