//! `ls` and `tree`.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;

use super::{
    DEPTH_MAX, Task,
    share::Stat,
    text::{self, for_stdout},
    tree::Tree as _,
};
use crate::tell::path_in_line;

/// List directories and files
#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Directories or files
    #[arg(default_value = "/", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Also show mode, link count, owner, group, size and time; owners are numeric, since only a guest knows their
    /// names
    #[arg(long, short = 'l')]
    long: bool,

    /// Include names that begin with a dot
    #[arg(long, short = 'a')]
    all: bool,

    /// Show inode numbers
    #[arg(long, short = 'i')]
    inode: bool,

    /// With --long, show sizes with a unit
    #[arg(long, short = 'H')]
    human: bool,

    /// List directories themselves, not their contents
    #[arg(long, short = 'D')]
    directory: bool,
}

/// Show a directory and its contents as a tree
#[derive(Debug, Args)]
pub(super) struct Tree {
    /// Directory to start from
    #[arg(default_value = "/", value_name = "PATH")]
    path: PathBuf,

    /// Descend at most N levels of directories
    #[arg(long, short = 'L', value_name = "N", default_value_t = DEPTH_MAX)]
    level: usize,

    /// Include names that begin with a dot
    #[arg(long, short = 'a')]
    all: bool,
}

/// A line of a listing.
struct Row {
    name: Vec<u8>,
    stat: Stat,
    target: Option<Vec<u8>>,
}

impl Ls {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let paths = self.paths.clone();
        let mut is_first = true;
        task.each(&paths, |task, path| {
            let stat = task.share.stat(path, true).or_else(|_| task.share.stat(path, false))?;
            if !stat.is_directory() || self.directory {
                return self.print(&[self.row(task, path.as_os_str().as_bytes().to_vec(), path)?]);
            }
            let mut out = io::stdout().lock();
            if paths.len() > 1 {
                if !is_first {
                    writeln!(out)?;
                }
                out.write_all(&for_stdout(path.as_os_str().as_bytes()))?;
                writeln!(out, ":")?;
            }
            is_first = false;
            drop(out);
            let rows = self.rows(task, path)?;
            self.print(&rows)
        })
    }

    fn rows(&self, task: &mut Task, dir: &Path) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for name in names(task, dir, self.all)? {
            task.check_interrupted()?;
            let path = dir.join(OsStr::from_bytes(&name));
            match self.row(task, name, &path) {
                Ok(row) => rows.push(row),
                Err(error) => task.fail(&error.context(path_in_line(&path))),
            }
        }
        Ok(rows)
    }

    fn row(&self, task: &Task, name: Vec<u8>, path: &Path) -> Result<Row> {
        if !self.long && !self.inode {
            return Ok(Row { name, stat: Stat::default(), target: None });
        }
        let stat = task.share.stat(path, false)?;
        let target = if stat.is_symlink() { task.share.read_link(path).ok() } else { None };
        Ok(Row { name, stat, target })
    }

    fn print(&self, rows: &[Row]) -> Result<()> {
        let mut out = io::stdout().lock();
        let size = |stat: &Stat| {
            if stat.is_device() {
                format!("{}, {}", stat.rdev.0, stat.rdev.1)
            } else if self.human {
                transom_size::short(stat.size)
            } else {
                stat.size.to_string()
            }
        };
        let width = |text: &dyn Fn(&Stat) -> String| rows.iter().map(|row| text(&row.stat).len()).max().unwrap_or(0);
        let (ino, links) = (width(&|stat| stat.ino.to_string()), width(&|stat| stat.nlink.to_string()));
        let (uid, gid) = (width(&|stat| stat.uid.to_string()), width(&|stat| stat.gid.to_string()));
        let sizes = width(&size);
        for Row { name, stat, target } in rows {
            if self.inode {
                write!(out, "{:>ino$} ", stat.ino)?;
            }
            if self.long {
                let (mode, time) = (text::mode(stat.mode), text::short_time(stat.mtime.0));
                write!(out, "{mode} {:>links$} {:>uid$} {:>gid$} ", stat.nlink, stat.uid, stat.gid)?;
                write!(out, "{:>sizes$} {time} ", size(stat))?;
            }
            out.write_all(&for_stdout(name))?;
            if let Some(target) = target.as_ref().filter(|_| self.long) {
                write!(out, " -> ")?;
                out.write_all(&for_stdout(target))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Tree {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let mut counts = (0, 0);
        let path = self.path.clone();
        task.each(std::slice::from_ref(&path), |task, path| {
            let mut out = io::stdout().lock();
            out.write_all(&for_stdout(path.as_os_str().as_bytes()))?;
            writeln!(out)?;
            drop(out);
            self.branch(task, path, "", 1, &mut counts)
        })?;
        let (directories, files) = counts;
        writeln!(io::stdout(), "\n{directories} directories, {files} files")?;
        Ok(())
    }

    fn branch(&self, task: &mut Task, dir: &Path, indent: &str, depth: usize, counts: &mut (u64, u64)) -> Result<()> {
        let names = names(task, dir, self.all)?;
        for (index, name) in names.iter().enumerate() {
            task.check_interrupted()?;
            let path = dir.join(OsStr::from_bytes(name));
            let is_last = index + 1 == names.len();
            let mut out = io::stdout().lock();
            write!(out, "{indent}{}", if is_last { "└── " } else { "├── " })?;
            out.write_all(&for_stdout(name))?;
            let stat = task.share.stat(&path, false);
            if let Ok(target) = task.share.read_link(&path) {
                write!(out, " -> ")?;
                out.write_all(&for_stdout(&target))?;
            }
            writeln!(out)?;
            drop(out);
            let below = format!("{indent}{}", if is_last { "    " } else { "│   " });
            let descended = match stat {
                Ok(stat) if stat.is_directory() => {
                    counts.0 += 1;
                    if depth < self.level.min(DEPTH_MAX) {
                        self.branch(task, &path, &below, depth + 1, counts)
                    } else {
                        Ok(())
                    }
                }
                Ok(_) => {
                    counts.1 += 1;
                    Ok(())
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = descended {
                if error.is::<super::Interrupted>() || super::is_broken_pipe(&error) {
                    return Err(error);
                }
                task.fail(&error.context(path_in_line(&path)));
            }
        }
        Ok(())
    }
}

/// Returns the names in a directory, sorted by their bytes.
fn names(task: &Task, dir: &Path, all: bool) -> Result<Vec<Vec<u8>>> {
    let mut names = task.share.names(dir)?;
    names.retain(|name| all || !name.starts_with(b"."));
    names.sort_unstable();
    Ok(names)
}
