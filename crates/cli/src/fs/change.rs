//! The commands that change a share: `mkdir`, `rm`, `mv`, `ln`, `touch`, `write`.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    DEPTH_MAX, Task,
    tree::{Tree as _, Writer as _},
};
use crate::tell::path_in_line;

/// The most that one request can carry.
const CHUNK_LEN: usize = 1 << 20;

/// Maximum delay until a signal that arrives just before a wait for standard input is noticed.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Make directories
#[derive(Debug, Args)]
pub(super) struct Mkdir {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Create parent directories as needed; no error if a directory exists
    #[arg(long, short = 'p')]
    parents: bool,
}

/// Remove files, and with --recursive directories
#[derive(Debug, Args)]
pub(super) struct Rm {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Remove directories and their contents
    #[arg(long, short = 'r')]
    recursive: bool,

    /// Ignore files that do not exist
    #[arg(long, short = 'f')]
    force: bool,
}

/// Rename files, or move them to another directory of the share
#[derive(Debug, Args)]
pub(super) struct Mv {
    /// The files to move, then the destination, which must be a directory if there are several files
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Fail instead of replacing an existing file
    #[arg(long, short = 'n')]
    no_clobber: bool,
}

/// Create a hard link or a symbolic link
#[derive(Debug, Args)]
pub(super) struct Ln {
    /// The file to link to; with --symbolic, any text
    target: OsString,

    /// The new link, or a directory to create it in
    path: PathBuf,

    /// Create a symbolic link instead of a hard link
    #[arg(long, short = 's')]
    symbolic: bool,
}

/// Set the times of files to now, and create files that do not exist
#[derive(Debug, Args)]
pub(super) struct Touch {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Write standard input to a file
#[derive(Debug, Args)]
pub(super) struct Write {
    path: PathBuf,

    /// Append to the file instead of replacing its contents
    #[arg(long, short = 'a')]
    append: bool,
}

impl Mkdir {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(&self.paths, |task, path| {
            if !self.parents {
                return Ok(task.share.mkdir(path, 0o777)?);
            }
            Ok(task.share.mkdir_all(path, 0o777)?)
        })
    }
}

impl Rm {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(&self.paths, |task, path| match task.share.stat(path, false) {
            Err(error) if self.force && error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(stat) if stat.is_directory() && !self.recursive => bail!("is a directory; use --recursive to remove it"),
            // Otherwise the contents would be removed before the server refuses to remove the directory.
            Ok(_) if !has_name(path) => bail!("has no name to remove: the path ends in `.`, `..` or `/`"),
            Ok(stat) => remove(task, path, stat.is_directory(), 0),
        })
    }
}

/// Returns whether the last component of `path` is a name, rather than `.`, `..` or the root.
fn has_name(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').find(|component| !component.is_empty());
    last.is_some_and(|last| !matches!(last, b"." | b".."))
}

fn remove(task: &mut Task, path: &Path, is_directory: bool, depth: usize) -> Result<()> {
    task.check_interrupted()?;
    if !is_directory {
        return Ok(task.share.remove_file(path)?);
    }
    if depth == DEPTH_MAX {
        bail!("more than {DEPTH_MAX} levels of directories");
    }
    for name in task.share.names(path)? {
        let path = path.join(OsStr::from_bytes(&name));
        let is_directory = task.share.stat(&path, false)?.is_directory();
        remove(task, &path, is_directory, depth + 1).with_context(|| path_in_line(&path))?;
    }
    Ok(task.share.remove_dir(path)?)
}

impl Mv {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let Some((to, from)) = self.paths.split_last() else { return Ok(()) };
        let is_into = task.share.stat(to, true).is_ok_and(|stat| stat.is_directory());
        if from.len() > 1 && !is_into {
            bail!("{}: not a directory, but there are several files to move", path_in_line(to));
        }
        task.each(from, |task, from| {
            let to = if is_into {
                to.join(from.file_name().context("path does not end in a file name")?)
            } else {
                to.clone()
            };
            task.share.rename_to(from, &to, !self.no_clobber).with_context(|| format!("to {}", path_in_line(&to)))
        })
    }
}

impl Ln {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let target = Path::new(&self.target);
        task.each(std::slice::from_ref(&self.path), |task, path| {
            let is_into = task.share.stat(path, true).is_ok_and(|stat| stat.is_directory());
            let path = if is_into {
                path.join(target.file_name().context("path does not end in a file name")?)
            } else {
                path.into()
            };
            if self.symbolic {
                return Ok(task.share.symlink(self.target.as_bytes(), &path)?);
            }
            task.share.link(target, &path).with_context(|| format!("to {}", path_in_line(target)))
        })
    }
}

impl Touch {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(&self.paths, |task, path| match task.share.set_times_to_now(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(task.share.create(path, 0o666).and_then(|file| file.close())?)
            }
            other => Ok(other?),
        })
    }
}

impl Write {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        task.each(std::slice::from_ref(&self.path), |task, path| {
            let (file, mut offset) = task.share.open_to_write(path, !self.append)?;
            let mut buffer = vec![0; CHUNK_LEN];
            loop {
                wait_for_input(task)?;
                let len = match io::stdin().read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.context("standard input")?,
                };
                if len == 0 {
                    return Ok(Box::new(file).close()?);
                }
                file.write_all_at(&buffer[..len], offset)?;
                offset += len as u64;
            }
        })
    }
}

/// Waits until standard input is readable or at its end. A blocking read would not return after a signal.
fn wait_for_input(task: &Task) -> Result<()> {
    loop {
        task.check_interrupted()?;
        let stdin = io::stdin();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&POLL_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => {}
            // The read reports any error.
            _ => return Ok(()),
        }
    }
}
