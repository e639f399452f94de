//! Observes what other processes of the host change in the share.
//!
//! The source is opened while the process is still privileged and outside of its sandbox, and read by a thread of the
//! isolated process. [`Counting`] is its only consumer so far.

use std::{io, os::fd::OwnedFd, sync::Arc};

use anyhow::Context as _;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use tracing::{error, info, warn};
use transom_metrics::Counter;
use transom_watch::{self as watch, Author, Change, Consumer, Tree, Watch, WatchError, Watcher};

use crate::{
    backend::Monitor,
    options::{FileHandles, HostChanges, Options},
};

/// Opens the source of changes that the options ask for. Must be called before privileges are dropped.
///
/// # Errors
///
/// Changes are mandatory and cannot be observed.
pub(crate) fn open(options: &Options) -> anyhow::Result<Option<Watch>> {
    let result = match options.host_changes {
        HostChanges::Never => return Ok(None),
        HostChanges::Prefer | HostChanges::Mandatory => open_share(options),
    };
    match result {
        Ok(watch) => {
            info!("observing the share: {}", watch.strength());
            Ok(Some(watch))
        }
        Err(error) if options.host_changes == HostChanges::Prefer => {
            warn!("changes on the host go unnoticed: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error.context("--host-changes mandatory")),
    }
}

fn open_share(options: &Options) -> anyhow::Result<Watch> {
    // Events name directories by handles, which have to be opened to find out whether they are in the share.
    let opens_handles = options.inodes.file_handles != FileHandles::Never;
    anyhow::ensure!(opens_handles, "with --inode-file-handles never, the daemon may not open the handles of events");
    let path = &options.share.path;
    let share = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .with_context(|| format!("cannot open {}", path.display()))?;
    anyhow::ensure!(is_directory(&share)?, "the share is a single file");
    // Which inodes the guest holds is not passed on, so a source that has to be told sees nothing.
    Ok(Watch::open(share, &watch::Options { may_fall_back: false, ..watch::Options::default() })?)
}

fn is_directory(share: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(share)?.st_mode) == FileType::Directory)
}

/// Starts the thread that reads changes of the share, which ends when the result is dropped.
///
/// # Errors
///
/// Changes are mandatory and cannot be observed.
pub(crate) fn start(
    watch: Watch,
    root: &OwnedFd,
    monitor: &Arc<Monitor>,
    wanted: HostChanges,
) -> anyhow::Result<Option<Watcher>> {
    match start_thread(watch, root, monitor) {
        Ok(watcher) => Ok(Some(watcher)),
        Err(error) if wanted == HostChanges::Prefer => {
            warn!("changes on the host go unnoticed: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error.context("--host-changes mandatory")),
    }
}

fn start_thread(watch: Watch, root: &OwnedFd, monitor: &Arc<Monitor>) -> anyhow::Result<Watcher> {
    let tree = Tree::new(root).map_err(io::Error::from).context("cannot open the file handles of the share")?;
    Watcher::start(watch, Some(tree), Counting(monitor.clone()))
        .context("cannot start the thread that observes the share")
}

/// Counts changes for the metrics.
struct Counting(Arc<Monitor>);

impl Consumer for Counting {
    fn changed(&mut self, change: &Change<'_>) {
        self.0.count(match change.author {
            Author::Own => Counter::OwnChanges,
            Author::Other(_) | Author::Unknown => Counter::HostChanges,
        });
    }

    fn overflowed(&mut self) {
        self.0.count(Counter::HostChangeOverflows);
    }

    fn ended(&mut self, error: WatchError) {
        error!("changes on the host go unnoticed from now on: {error}");
    }
}
