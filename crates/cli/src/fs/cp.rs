//! `cp`: what goes where, and how far it is. [`copy`](super::copy) does it.

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
    copy::{At, Copier},
    tree::{Host, Kind, Tree},
};

/// Copy into the share, out of it, or within it
///
/// A colon stands before paths of the share: `cp :notes.txt .` copies out, `cp notes.txt :` copies in. A file of this
/// machine whose name begins with a colon is ./:name. Holes stay holes. A file appears under its name when all of it is
/// there.
#[derive(Debug, Args)]
pub(super) struct Cp {
    /// What to copy, and at the end where to; several where that is a directory
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,

    /// Directories with all that is in them
    #[arg(long, short = 'r')]
    recursive: bool,

    /// Keep times, modes and, where this user may give files away, owners
    #[arg(long, short = 'p')]
    preserve: bool,

    /// Say nothing while it goes on; the default where standard error is no terminal
    #[arg(long, short = 'q')]
    quiet: bool,
}

/// A path of the share or of this machine.
struct Place {
    is_share: bool,
    path: PathBuf,
}

impl Place {
    fn of(text: &OsStr) -> Self {
        match text.as_bytes().strip_prefix(b":") {
            Some(path) => Self { is_share: true, path: Path::new("/").join(OsStr::from_bytes(path)) },
            None => Self { is_share: false, path: text.into() },
        }
    }

    fn at<'a>(&'a self, share: &'a dyn Tree) -> At<'a> {
        At { tree: if self.is_share { share } else { &Host }, path: &self.path }
    }
}

impl Cp {
    pub(super) fn run(self, task: &mut Task) -> Result<()> {
        let mut places: Vec<_> = self.paths.iter().map(|path| Place::of(path)).collect();
        let to = places.pop().context("nothing to copy")?;
        if places.iter().chain([&to]).all(|place| !place.is_share) {
            bail!("no path of the share among these: a colon stands before those, as in :{}", to.path.display());
        }
        let progress = self.progress(task, &places);
        let is_stopped = Arc::clone(&task.is_stopped);
        let share = &task.share;
        let target = to.at(share);
        let is_into = target.tree.metadata(&to.path, true).is_ok_and(|meta| meta.kind() == Kind::Directory);
        ensure!(
            is_into || places.len() == 1,
            "{}: is no directory, and there are several files to copy",
            target.name()
        );
        let mut has_failed = false;
        let mut tell = |error: &anyhow::Error| {
            has_failed = true;
            progress.suspend(|| eprintln!("transom: {error:#}"));
        };
        let mut copier = Copier::new(&progress, &is_stopped, &mut tell);
        (copier.is_recursive, copier.preserves) = (self.recursive, self.preserve);
        for place in &places {
            let path = if is_into {
                // The contents of a root, or of `..`, go into the directory itself.
                place.path.file_name().map_or_else(|| to.path.clone(), |name| to.path.join(name))
            } else {
                to.path.clone()
            };
            match copier.copy(place.at(share), At { path: &path, ..target }, !self.recursive) {
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => (copier.failed)(&error),
                Ok(()) => {}
            }
        }
        progress.finish_and_clear();
        task.has_failed |= has_failed;
        Ok(())
    }

    /// A bar as long as the files that are named; directories make it grow.
    fn progress(&self, task: &Task, places: &[Place]) -> ProgressBar {
        let files = places.iter().filter_map(|place| place.at(&task.share).tree.metadata(&place.path, true).ok());
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
        // Standard error that is no terminal is left alone by the library too.
        bar.set_draw_target(if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        bar
    }
}
