//! What changes a share: `mkdir`, `rm`, `mv`, `ln`, `touch`, `write`.

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
    DEPTH_MAX, Task, text,
    tree::{Tree as _, Writer as _},
};

/// One request of the largest size carries it.
const CHUNK_LEN: usize = 1 << 20;

/// A signal that comes just before a wait for standard input is noticed so much later.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Make directories
#[derive(Debug, Args)]
pub(super) struct Mkdir {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Those above too, and no error for one that is there
    #[arg(long, short = 'p')]
    parents: bool,
}

/// Remove files, and with --recursive directories
#[derive(Debug, Args)]
pub(super) struct Rm {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Directories with all that is in them
    #[arg(long, short = 'r')]
    recursive: bool,

    /// No error for what is not there
    #[arg(long, short = 'f')]
    force: bool,
}

/// Rename, or move to another directory of the share
#[derive(Debug, Args)]
pub(super) struct Mv {
    /// What to move; several where the last path is a directory
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// An error rather than a replacement where something is there
    #[arg(long, short = 'n')]
    no_clobber: bool,
}

/// Give a file a second name, or make a symlink
#[derive(Debug, Args)]
pub(super) struct Ln {
    /// The file; with --symbolic any text
    target: OsString,

    /// The new name, or a directory for it
    path: PathBuf,

    /// A symlink rather than a second name
    #[arg(long, short = 's')]
    symbolic: bool,
}

/// Set the times of files to now, and make those that are not there
#[derive(Debug, Args)]
pub(super) struct Touch {
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Write standard input to a file
#[derive(Debug, Args)]
pub(super) struct Write {
    path: PathBuf,

    /// Behind what is there, rather than in its place
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
            Ok(stat) if stat.is_directory() && !self.recursive => bail!("is a directory; --recursive removes those"),
            // All that is in it would be gone before the server refuses.
            Ok(_) if !has_name(path) => bail!("has no name that could be removed"),
            Ok(stat) => remove(task, path, stat.is_directory(), 0),
        })
    }
}

/// Whether a path ends with a name, and not with `.`, `..` or the root.
fn has_name(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').find(|component| !component.is_empty());
    last.is_some_and(|last| !matches!(last, b"." | b".."))
}

fn remove(task: &mut Task, path: &Path, is_directory: bool, depth: usize) -> Result<()> {
    task.stop_if_asked()?;
    if !is_directory {
        return Ok(task.share.remove_file(path)?);
    }
    if depth == DEPTH_MAX {
        bail!("more than {DEPTH_MAX} directories deep");
    }
    for name in task.share.names(path)? {
        let path = path.join(OsStr::from_bytes(&name));
        let is_directory = task.share.stat(&path, false)?.is_directory();
        remove(task, &path, is_directory, depth + 1).with_context(|| text::path_for_message(&path))?;
    }
    Ok(task.share.remove_dir(path)?)
}

impl Mv {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let Some((to, from)) = self.paths.split_last() else { return Ok(()) };
        let is_into = task.share.stat(to, true).is_ok_and(|stat| stat.is_directory());
        if from.len() > 1 && !is_into {
            bail!("{}: is no directory, and there are several files to move", text::path_for_message(to));
        }
        task.each(from, |task, from| {
            let to = if is_into { to.join(from.file_name().context("has no name to keep")?) } else { to.clone() };
            task.share
                .rename_to(from, &to, !self.no_clobber)
                .with_context(|| format!("to {}", text::path_for_message(&to)))
        })
    }
}

impl Ln {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let target = Path::new(&self.target);
        task.each(std::slice::from_ref(&self.path), |task, path| {
            let is_into = task.share.stat(path, true).is_ok_and(|stat| stat.is_directory());
            let path =
                if is_into { path.join(target.file_name().context("has no name to keep")?) } else { path.into() };
            if self.symbolic {
                return Ok(task.share.symlink(self.target.as_bytes(), &path)?);
            }
            task.share.link(target, &path).with_context(|| format!("to {}", text::path_for_message(target)))
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

/// Waits until standard input has something, or has ended. A read would go on waiting after a signal.
fn wait_for_input(task: &Task) -> Result<()> {
    loop {
        task.stop_if_asked()?;
        let stdin = io::stdin();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => {}
            // What is wrong with it the read tells.
            _ => return Ok(()),
        }
    }
}
