//! Observes what other processes of the host change in the share, once for all who want to know: the metrics count the
//! changes (`--host-changes`), [`stamps`] stamps them for the guests of a coherence group, and the agent of the guest
//! replays them (`--events`).
//!
//! [`open`] opens the source while the process is still privileged and outside of its sandbox. [`start`] starts the
//! thread of the isolated process that reads it. [`announce`] translates changes for the agent.

mod announce;
mod peer;
mod shared;
mod stamps;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use anyhow::Context as _;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use tracing::{error, info, warn};
use transom_host::{
    Errno,
    passthrough::{ObserveDirectories, Passthrough},
    server::Server,
};
use transom_metrics::Counter;
use transom_watch::{
    self as watch, Author, Change, Consumer, InodeNumbers, Strength, Tree, Watch, WatchError, Watcher,
};

use crate::{
    backend::Monitor,
    listen::Traces,
    options::{Events, FileHandles, HostChanges, Options},
};
use shared::{Giving, Sharing};
use stamps::Stamps;

/// The source of changes, and what of it others of the group get.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) watch: Watch,
    sharing: Option<Sharing>,
}

/// The source of changes, and for whom.
#[derive(Debug)]
pub struct Changes {
    watch: Watch,
    sharing: Option<Sharing>,
    /// For the metrics and the group: which changes of the file system are in the share.
    tree: Option<Tree>,
    /// For the group: which inodes changes are about.
    numbers: Option<InodeNumbers>,
    announces: bool,
    /// Whether the guest is told over its notification queue.
    notifies: bool,
    /// Whether the metrics have all changes, and not only those that this daemon stamps.
    counts: bool,
}

impl Changes {
    /// Returns whether the agent of the guest is told.
    pub fn are_announced(&self) -> bool {
        self.announces
    }

    /// Returns whether the guest is told over its notification queue.
    pub fn are_notified(&self) -> bool {
        self.notifies
    }

    /// Returns what has to be told of each directory that the guest knows, unless the whole file system is observed.
    pub fn directories(&self) -> Option<Arc<dyn ObserveDirectories>> {
        self.watch.directories().map(|directories| Arc::new(Directories(directories)) as _)
    }
}

/// Opens the source of changes that the options ask for. Must be called before privileges are dropped.
///
/// # Errors
///
/// Changes are mandatory and cannot be observed.
pub(crate) fn open(options: &Options, traces: &mut Traces) -> anyhow::Result<Option<Opened>> {
    let (counts, events, notifies) = (options.host_changes, options.share.events, options.share.notification_queue);
    if counts == HostChanges::Never && events == Events::Never && !notifies {
        return Ok(None);
    }
    match open_share(options, traces) {
        Ok(opened) => {
            info!("observing the share: {}", opened.watch.strength());
            Ok(Some(opened))
        }
        Err(error) => unobserved(options, error),
    }
}

/// Decides whether that is an error, and says why changes go unnoticed otherwise.
fn unobserved<T>(options: &Options, error: anyhow::Error) -> anyhow::Result<Option<T>> {
    match (options.share.events, options.host_changes) {
        (Events::Always, _) => return Err(error.context("--events cannot observe the share")),
        _ if options.share.notification_queue => {
            return Err(error.context("--notification-queue cannot observe the share"));
        }
        (_, HostChanges::Mandatory) => return Err(error.context("--host-changes mandatory")),
        (_, HostChanges::Prefer) => warn!("changes on the host go unnoticed: {error:#}"),
        (_, HostChanges::Auto) => info!("changes on the host are not stamped: {error:#}"),
        (Events::Auto | Events::Never, HostChanges::Never) => info!("no events for the guest: {error:#}"),
    }
    Ok(None)
}

fn open_share(options: &Options, traces: &mut Traces) -> anyhow::Result<Opened> {
    // Events name directories by handles, by which the share's inodes have to be known.
    let opens_handles = options.inodes.file_handles != FileHandles::Never;
    anyhow::ensure!(opens_handles, "with --inode-file-handles never, the daemon may not open the handles of events");
    let path = &options.share.path;
    let share = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .with_context(|| format!("cannot open {}", path.display()))?;
    anyhow::ensure!(is_directory(&share)?, "the share is a single file");
    // Only the guest is content with what happens in directories that it knows.
    let tells_guest = options.share.events != Events::Never || options.share.notification_queue;
    let weakest = match options.host_changes {
        HostChanges::Never | HostChanges::Auto if tells_guest => Strength::Directories,
        _ => Strength::FileSystem,
    };
    let open = || Ok(Watch::open(&share, &watch::Options { weakest, ..watch::Options::default() })?);
    // Who reads while it is another one's turn has to have a queue of its own.
    let reads_all = options.host_changes != HostChanges::Auto || tells_guest;
    match options.cache.coherence_group.as_ref().filter(|_| !reads_all) {
        Some(group) => {
            let (watch, sharing) = shared::join(&group.path(), &share, shared::LIMITS, traces, open)?;
            Ok(Opened { watch, sharing })
        }
        None => Ok(Opened { watch: open()?, sharing: None }),
    }
}

fn is_directory(share: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(share)?.st_mode) == FileType::Directory)
}

/// Finds out what the isolated process can do with `watch`.
///
/// # Errors
///
/// Changes are mandatory, and the handles of the share cannot be opened.
pub(crate) fn prepare(opened: Opened, root: impl AsFd, options: &Options) -> anyhow::Result<Option<Changes>> {
    let Opened { watch, sharing } = opened;
    let (announces, notifies) = (options.share.events != Events::Never, options.share.notification_queue);
    if watch.strength() == Strength::Directories {
        if options.host_changes == HostChanges::Auto {
            info!("changes on the host are not stamped: this needs CAP_SYS_ADMIN");
        }
        return Ok(Some(Changes {
            watch,
            sharing: None,
            tree: None,
            numbers: None,
            announces,
            notifies,
            counts: false,
        }));
    }
    let found = Tree::new(&root).and_then(|tree| Ok((tree, InodeNumbers::new(&root)?)));
    match found.map_err(io::Error::from).context("cannot open the file handles of the share") {
        Ok((tree, numbers)) => Ok(Some(Changes {
            watch,
            sharing,
            tree: (options.host_changes != HostChanges::Never).then_some(tree),
            numbers: options.cache.coherence_group.is_some().then_some(numbers),
            announces,
            notifies,
            counts: matches!(options.host_changes, HostChanges::Prefer | HostChanges::Mandatory),
        })),
        Err(error) => unobserved(options, error),
    }
}

/// Starts the thread that reads changes of the share, and the one that gives its source to others of the group. They
/// end when the result is dropped.
///
/// # Errors
///
/// Those of starting a thread.
pub(crate) fn start(
    changes: Changes,
    server: &Arc<Server<Passthrough>>,
    monitor: &Arc<Monitor>,
) -> anyhow::Result<(Watcher, Option<Giving>)> {
    let Changes { watch, sharing, tree, numbers, announces, notifies, counts } = changes;
    let tells_guest = announces || notifies;
    let reads_all = tells_guest || counts;
    let stamps = tree.as_ref().and(numbers).map(|numbers| Stamps::new(numbers, server.clone(), reads_all));
    let announced = tells_guest.then(|| server.clone());
    let observer = Observer { tree, monitor: monitor.clone(), server: announced, stamps, reads_all };
    let watcher = Watcher::start(watch, None, observer).context("cannot start the thread that observes the share")?;
    let giving = sharing.map(Sharing::start).transpose().context("cannot start the thread that shares the source")?;
    Ok((watcher, giving))
}

/// Single directories, observed by fanotify.
#[derive(Debug)]
struct Directories(watch::Directories);

impl ObserveDirectories for Directories {
    fn observe(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.observe(dir)
    }

    fn ignore(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.ignore(dir)
    }
}

/// Passes each change on.
struct Observer {
    /// `None` if changes are neither counted nor stamped.
    tree: Option<Tree>,
    monitor: Arc<Monitor>,
    /// `None` if the guest is not told.
    server: Option<Arc<Server<Passthrough>>>,
    /// `None` if changes are not stamped.
    stamps: Option<Stamps>,
    /// Whether changes are of interest while another daemon stamps them.
    reads_all: bool,
}

impl Consumer for Observer {
    fn is_ready(&mut self) -> bool {
        self.reads_all || self.stamps.as_ref().is_none_or(Stamps::are_due)
    }

    fn caught_up(&mut self) {
        if let Some(stamps) = &mut self.stamps {
            stamps.caught_up();
        }
    }

    fn changed(&mut self, change: &Change<'_>) {
        let inside = self.tree.as_mut().and_then(|tree| tree.narrow(change));
        // First, since guests wait for it.
        if let Some(stamps) = &mut self.stamps {
            stamps.changed(change, inside.as_ref());
        }
        // The guest knows its directories by handle, wherever they are.
        if let Some(server) = &self.server {
            announce::changed(server.file_system(), change);
        }
        if let Some(change) = inside {
            self.monitor.count(match change.author {
                Author::Own => Counter::OwnChanges,
                Author::Other(_) | Author::Unknown => Counter::HostChanges,
            });
        }
    }

    fn overflowed(&mut self) {
        self.monitor.count(Counter::HostChangeOverflows);
        if let Some(stamps) = &self.stamps {
            stamps.lost();
        }
        if let Some(server) = &self.server {
            server.file_system().host_changes_lost();
        }
    }

    fn ended(&mut self, error: WatchError) {
        error!("changes on the host go unnoticed from now on: {error}");
        if let Some(stamps) = &self.stamps {
            stamps.end();
        }
        if let Some(server) = &self.server {
            server.file_system().host_changes_end();
        }
    }
}
