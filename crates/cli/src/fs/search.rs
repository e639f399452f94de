//! `find`.

use std::{
    ffi::OsStr,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::{Args, ValueEnum};
use globset::{GlobBuilder, GlobMatcher};

use super::{DEPTH_MAX, Task, share::Stat, text::for_stdout};
use crate::tell::path_in_line;

/// Print the paths below directories, optionally only those that match
#[derive(Debug, Args)]
pub(super) struct Find {
    /// Paths to start from
    #[arg(default_value = "/", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Print only names that match a pattern with *, ? and […]
    #[arg(long, short = 'n', value_name = "PATTERN", value_parser = parse_pattern)]
    name: Option<GlobMatcher>,

    /// Print only entries of this type
    #[arg(long, short = 't', value_name = "KIND")]
    r#type: Option<Type>,

    /// Descend at most N levels of directories
    #[arg(long, value_name = "N", default_value_t = DEPTH_MAX)]
    max_depth: usize,

    /// End each path with a NUL byte instead of a newline, for `xargs -0`
    #[arg(long, short = '0')]
    print0: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Type {
    #[value(alias = "f")]
    File,
    #[value(alias = "d")]
    Directory,
    #[value(alias = "l")]
    Symlink,
    /// Any other type
    #[value(alias = "o")]
    Other,
}

fn parse_pattern(text: &str) -> Result<GlobMatcher, globset::Error> {
    // Names contain no slashes.
    Ok(GlobBuilder::new(text).literal_separator(true).build()?.compile_matcher())
}

impl Find {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(&self.paths, |task, path| {
            let stat = task.share.stat(path, false)?;
            self.visit(task, path, &stat, 0)
        })
    }

    fn visit(&self, task: &mut Task, path: &Path, stat: &Stat, depth: usize) -> Result<()> {
        if self.matches(path, stat) {
            self.print(path)?;
        }
        if !stat.is_directory() || depth >= self.max_depth.min(DEPTH_MAX) {
            return Ok(());
        }
        let mut names = task.share.names(path)?;
        names.sort_unstable();
        for name in names {
            task.check_interrupted()?;
            let path = path.join(OsStr::from_bytes(&name));
            let visited = match task.share.stat(&path, false) {
                Ok(stat) => self.visit(task, &path, &stat, depth + 1),
                Err(error) => Err(error.into()),
            };
            match visited {
                Err(error) if error.is::<super::Interrupted>() || super::is_broken_pipe(&error) => return Err(error),
                Err(error) => task.fail(&error.context(path_in_line(&path))),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn matches(&self, path: &Path, stat: &Stat) -> bool {
        let kind = match stat.mode & 0o170_000 {
            0o100_000 => Type::File,
            0o040_000 => Type::Directory,
            0o120_000 => Type::Symlink,
            _ => Type::Other,
        };
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.r#type.is_none_or(|wanted| wanted == kind)
            && self.name.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }

    fn print(&self, path: &Path) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let path = path.as_os_str().as_bytes();
        if self.print0 {
            out.write_all(path)?;
            return out.write_all(b"\0");
        }
        out.write_all(&for_stdout(path))?;
        out.write_all(b"\n")
    }
}
