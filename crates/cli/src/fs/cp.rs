//! `cp`: parses the paths and shows the progress. [`copy`](super::copy) does the copying.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    Interrupted, Task,
    copy::{Copier, TreePath},
    tree::{Host, Kind, Tree},
};

/// Copy files into the share, out of it, or within it
///
/// Paths of the share begin with a colon: `cp :notes.txt .` copies out, `cp notes.txt :` copies in. For a local file
/// whose name begins with a colon, write ./:name. Holes are preserved. A file appears under its final name once it is
/// complete.
#[derive(Debug, Args)]
pub(super) struct Cp {
    /// The files to copy, then the destination, which must be a directory if there are several files
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,

    /// Copy directories and their contents
    #[arg(long, short = 'r')]
    recursive: bool,

    /// Preserve times, modes and, if permitted, owners
    #[arg(long, short = 'p')]
    preserve: bool,

    /// Show no progress; the default if standard error is not a terminal
    #[arg(long, short = 'q')]
    quiet: bool,
}

/// A path of the share, or of this machine.
struct Location {
    is_share: bool,
    path: PathBuf,
}

impl Location {
    fn of(text: &OsStr) -> Self {
        match text.as_bytes().strip_prefix(b":") {
            Some(path) => Self { is_share: true, path: Path::new("/").join(OsStr::from_bytes(path)) },
            None => Self { is_share: false, path: text.into() },
        }
    }

    fn at<'a>(&'a self, share: &'a dyn Tree) -> TreePath<'a> {
        TreePath { tree: if self.is_share { share } else { &Host }, path: &self.path }
    }
}

impl Cp {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let mut locations: Vec<_> = self.paths.iter().map(|path| Location::of(path)).collect();
        let to = locations.pop().context("nothing to copy")?;
        if locations.iter().chain([&to]).all(|location| !location.is_share) {
            bail!(
                "none of these paths is in the share: write a colon before a path of the share, as in :{}",
                to.path.display()
            );
        }
        let progress = self.progress(task, &locations);
        let is_stopped = Arc::clone(&task.is_stopped);
        let share = &task.share;
        let target = to.at(share);
        let is_into = target.tree.metadata(&to.path, true).is_ok_and(|meta| meta.kind() == Kind::Directory);
        ensure!(
            is_into || locations.len() == 1,
            "{}: not a directory, but there are several files to copy",
            target.name()
        );
        let mut has_failed = false;
        let mut tell = |error: &anyhow::Error| {
            has_failed = true;
            progress.suspend(|| eprintln!("transom: {error:#}"));
        };
        let mut copier = Copier::new(&progress, &is_stopped, &mut tell);
        (copier.is_recursive, copier.preserves) = (self.recursive, self.preserve);
        for location in &locations {
            let path = if is_into {
                // A source without a name, such as the root or `..`, is copied into the directory itself.
                location.path.file_name().map_or_else(|| to.path.clone(), |name| to.path.join(name))
            } else {
                to.path.clone()
            };
            match copier.copy(location.at(share), TreePath { path: &path, ..target }, !self.recursive) {
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => (copier.failed)(&error),
                Ok(()) => {}
            }
        }
        progress.finish_and_clear();
        task.has_failed |= has_failed;
        Ok(())
    }

    /// Returns a progress bar for the files named on the command line; it grows with the files found in directories.
    fn progress(&self, task: &Task, locations: &[Location]) -> ProgressBar {
        let files =
            locations.iter().filter_map(|location| location.at(&task.share).tree.metadata(&location.path, true).ok());
        let len = files.filter(|meta| meta.kind() == Kind::File).map(|meta| meta.len).sum();
        let bar = if self.recursive { ProgressBar::no_length() } else { ProgressBar::new(len) };
        let template = if self.recursive {
            "{bytes} {binary_bytes_per_sec} {wide_msg}"
        } else {
            "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {wide_msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        // The library draws nothing if standard error is not a terminal.
        bar.set_draw_target(if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        bar
    }
}
