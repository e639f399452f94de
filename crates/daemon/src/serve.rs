//! Combines the file system and the back end, and configures each from the options.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{getegid, geteuid};
use transom_host::{
    group::{Group, TableFile},
    idmap::{GidMap, OwnerMap, UidMap},
    journal::{Journal, QueueSlots},
    metrics::MetricsServer,
    migration,
    notifications::Notifications,
    passthrough::{self, Dax, Passthrough},
    server::Server,
    sysfd::ProcFds,
    window::{PaddedFiles, Window},
};
use transom_wire::config::TAG_LEN;

use crate::{
    backend::{self, BackendConfig, Monitor, VersionsRegion},
    changes::{self, Changes},
    options::{
        CachePolicy, FileHandles, MigrationLocks, MigrationMode, MigrationOnError, MigrationOptions, Negotiation,
        Options, Owner, OwnershipOptions, WindowOptions,
    },
    start::Started,
    upgrade::{self, control::RingPosition},
};

/// Serves the share until the front end disconnects, or indefinitely with `--keep-serving`. Blocks.
pub fn serve(options: &Options, started: Started) -> anyhow::Result<()> {
    let events = started.changes.as_ref().is_some_and(Changes::are_announced);
    let notifications = notifications(&started)?;
    let observe_directories = started.changes.as_ref().and_then(Changes::directories);
    let basic = file_system_config(options, started.guest_fds)?;
    let config = passthrough::Config { events, notifications: notifications.clone(), observe_directories, ..basic };
    let monitor = Arc::new(Monitor::default());
    let proc_fds = ProcFds::from(started.proc_self_fd);
    let group = started.group.as_ref().map(|file| Group::join(file, &started.root, &proc_fds)).transpose()?;
    if let (Some(group), Some(inode)) = (&group, started.pid_namespace) {
        group.set_pid_namespace(inode);
    }
    let joined = group.as_ref().zip(started.group);
    let versions = joined.map(|(group, file)| versions_region(options, group, file)).transpose()?.flatten();
    let mut file_system = Passthrough::new(started.root, proc_fds, config)?;
    if let Some(group) = group {
        file_system = file_system.with_group(group);
    }
    let window = window(options);
    if let Some((window, wanted)) = &window {
        let padded = started.padding.map(|views| Arc::new(views) as Arc<dyn PaddedFiles>);
        let dax = Dax::new(window.clone(), wanted.policy, padded);
        file_system = file_system.with_dax(if wanted.guards { dax } else { dax.without_guards() });
    }
    let (journal, left) = started.life.map(|life| (Arc::new(life.journal), life.left)).unzip();
    if let Some(journal) = &journal {
        file_system = file_system.with_journal(journal.clone());
    }
    let server = Arc::new(Server::new(file_system));
    let mut left = left.flatten();
    let restarted = left.is_some().then(|| journal.as_ref().map(positions)).flatten();
    if let Some(left) = &mut left {
        server.recover(left).context("the session of the process that died cannot go on")?;
    }
    let watcher = started.changes.map(|changes| changes::start(changes, &server, &monitor));
    let _watcher = watcher.transpose()?;
    let metrics = started.metrics.map(|listener| {
        let (server, monitor) = (server.clone(), monitor.clone());
        MetricsServer::serve(listener, move || monitor.snapshot(server.file_system().gauges()))
    });
    let _metrics = metrics.transpose().context("cannot serve the metrics")?;
    let _tidying = Tidying::start(server.clone())?;
    let migration = match server.file_system().migration_obstacle() {
        Some(obstacle) => {
            tracing::info!("front ends are told that the guest cannot be migrated: {obstacle}");
            None
        }
        None => Some(backend::MIGRATION_IDLE_MAX),
    };
    let config = BackendConfig {
        versions,
        notifications,
        migration,
        journal,
        ..backend_config(options, window.map(|(window, _)| window))
    };
    let pending = match &left {
        Some(_) => take_pending(&started.listener).context("cannot take connections")?,
        None => Vec::new(),
    };
    if let Some(control) = started.control {
        let (server, monitor, ownership) = (server.clone(), monitor.clone(), config.ownership.clone());
        upgrade::answer::start(control, restarted, server, monitor, ownership).context("lost the supervisor")?;
    }
    // The connection of the process that died is among them. Its end tells the supervisor nothing new by now.
    drop((left, pending));
    let served = backend::serve(started.listener, server, &config, &monitor);
    started.traces.remove();
    served
}

/// Returns where changes wait for a guest that is told of them.
fn notifications(started: &Started) -> anyhow::Result<Option<Arc<Notifications>>> {
    let notifies = started.changes.as_ref().is_some_and(Changes::are_notified);
    Ok(notifies.then(Notifications::new).transpose().context("cannot create an event")?.map(Arc::new))
}

/// Accepts the connections that were meant for the process that died. They are closed once the supervisor has been told
/// to make another.
fn take_pending(listener: &UnixListener) -> io::Result<Vec<UnixStream>> {
    listener.set_nonblocking(true)?;
    let pending = std::iter::from_fn(|| listener.accept().ok()).map(|(stream, _)| stream).collect();
    listener.set_nonblocking(false)?;
    Ok(pending)
}

/// Returns where the rings stand from which the process that died has taken requests.
fn positions(journal: &Arc<Journal>) -> Vec<RingPosition> {
    let queues = (0..).zip(journal.queues());
    let position = |(ring, queue): (u16, QueueSlots)| {
        Some(RingPosition { ring, position: queue.position()?, is_stopped: queue.is_stopped() })
    };
    queues.filter_map(position).collect()
}

/// How often the file system releases what it holds only for speed.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// The thread that tidies. Ended when this is dropped, so that it does not keep the file system, which leaves its
/// coherence group when it is dropped.
struct Tidying {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Tidying {
    fn start(server: Arc<Server<Passthrough>>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("tidy".into()).spawn(move || {
            while stopped.recv_timeout(TIDY_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                server.file_system().tidy();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn backend_config(options: &Options, window: Option<Arc<Window>>) -> BackendConfig {
    let workers = &options.workers;
    BackendConfig {
        tag: options.share.tag.as_deref().map(padded_tag),
        request_queues: workers.request_queues,
        poll_max: Duration::from_micros(workers.poll_us.into()),
        rate: workers.rate,
        pool_threads: workers.thread_pool_size,
        window,
        versions: None,
        notifications: None,
        keep_serving: options.socket.keep_serving,
        ownership: Arc::default(),
        migration: None,
        journal: None,
    }
}

/// Returns the requested window, if this share can have one with this front end.
fn window(options: &Options) -> Option<(Arc<Window>, WindowOptions)> {
    let wanted = options.window?;
    let window = Window::new(wanted.len_bytes, wanted.front_end);
    if !Dax::is_possible(&window, options.share.is_readonly) {
        tracing::warn!("no window: the front end maps everything writable, and the share is read-only");
        return None;
    }
    Some((Arc::new(window), wanted))
}

/// Returns the version table as a region: the table itself if the front end can keep its guest from writing it, and
/// otherwise a mirror of it.
///
/// # Errors
/// There is no mirror left, and the guest is told to rely on one; or there is no space for it.
fn versions_region(options: &Options, group: &Group, file: TableFile) -> anyhow::Result<Option<VersionsRegion>> {
    let (table, before_use): (_, Arc<dyn Fn() -> bool + Send + Sync>) = if options.front_end.maps_read_only {
        (group.table_fd(), Arc::new(|| true))
    } else if options.socket.keep_serving || options.socket.upgradable {
        // A guest may keep its mirror mapped, and does not map another one: the process, the mirror and the guest
        // belong together.
        tracing::warn!(
            "the guest gets no version table: with --keep-serving and --upgradable, the front end has to be one that \
             maps it for reading; name it with --front-end"
        );
        return Ok(None);
    } else if let Some(mirror) = group.reserve_mirror(file)? {
        (mirror, Arc::new(group.mirror_starter()))
    } else {
        let problem = "the guests of the group have used all mirrors of its version table; remove the group's \
                       directory when no daemon uses it";
        // Without a table, the guest would never ask again.
        anyhow::ensure!(options.cache.policy != CachePolicy::Always, "--cache=always in a group: {problem}");
        tracing::warn!("the guest gets no version table: {problem}");
        return Ok(None);
    };
    let table = Arc::new(table.try_clone_to_owned().context("cannot duplicate a descriptor")?);
    let table_len_bytes = group.table_len_bytes();
    let len_bytes = VersionsRegion::len_beside(options.window.map_or(0, |window| window.len_bytes), table_len_bytes);
    Ok(Some(VersionsRegion { table, table_len_bytes, len_bytes, front_end: options.front_end, before_use }))
}

/// Pads the tag, whose length the options have checked.
fn padded_tag(tag: &str) -> [u8; TAG_LEN] {
    let mut padded = [0; TAG_LEN];
    let len = tag.len().min(TAG_LEN);
    padded[..len].copy_from_slice(&tag.as_bytes()[..len]);
    padded
}

fn file_system_config(options: &Options, guest_fds: u64) -> anyhow::Result<passthrough::Config> {
    let Options { cache, attributes, share, locks, inodes, .. } = options;
    Ok(passthrough::Config {
        cache: match cache.policy {
            CachePolicy::Never => passthrough::CachePolicy::Never,
            CachePolicy::Metadata => passthrough::CachePolicy::Metadata,
            CachePolicy::Auto => passthrough::CachePolicy::Auto,
            CachePolicy::Always => passthrough::CachePolicy::Always,
        },
        negative_timeout: cache.negative_timeout,
        writeback: cache.writeback,
        allow_mmap: cache.allow_mmap,
        allow_direct_io: cache.allow_direct_io,
        announce_submounts: share.announce_submounts,
        // Each entry would be a record of the journal.
        readdirplus: cache.readdirplus && !options.socket.resilient,
        xattr: attributes.xattr,
        xattr_map: attributes
            .xattr_rules
            .as_deref()
            .map(str::parse)
            .transpose()
            .context("cannot use the rules of --xattrmap")?,
        posix_acl: negotiation(attributes.posix_acl),
        security_label: negotiation(attributes.security_label),
        killpriv_v2: attributes.killpriv_v2,
        preserve_noatime: attributes.preserve_noatime,
        birth_times: attributes.birth_times,
        inode_file_handles: match inodes.file_handles {
            FileHandles::Never => passthrough::FileHandles::Never,
            FileHandles::Prefer => passthrough::FileHandles::Prefer,
            FileHandles::Mandatory => passthrough::FileHandles::Mandatory,
        },
        readonly: share.is_readonly,
        is_upper_layer: share.is_upper_layer,
        is_layered: share.layer.is_some(),
        quota: share.quota,
        events_validity: share.events_validity,
        posix_lock: locks.posix,
        flock: locks.flock,
        owners: owner_map(&options.ownership)?,
        max_fds: Some(usize::try_from(guest_fds).unwrap_or(usize::MAX)),
        max_inodes: inodes.limit,
        hidden: share.hidden.clone(),
        migration: migration_options(options.migration),
        ..passthrough::Config::default()
    })
}

/// Translates the options of live migration. Paths are always tried out at the switch-over, so that nothing is left to
/// do for `--migration-confirm-paths`.
fn migration_options(options: MigrationOptions) -> migration::Options {
    migration::Options {
        mode: match options.mode {
            MigrationMode::FindPaths => migration::Mode::FindPaths,
            MigrationMode::FileHandles => migration::Mode::FileHandles,
        },
        on_error: match options.on_error {
            MigrationOnError::Abort => migration::OnError::Abort,
            MigrationOnError::GuestError => migration::OnError::GuestError,
        },
        verify_handles: options.verify_handles,
        carries_locks: options.locks == MigrationLocks::Carry,
    }
}

fn negotiation(negotiation: Negotiation) -> passthrough::Negotiation {
    match negotiation {
        Negotiation::Never => passthrough::Negotiation::Never,
        Negotiation::Auto => passthrough::Negotiation::Auto,
        Negotiation::Always => passthrough::Negotiation::Always,
    }
}

fn owner_map(ownership: &OwnershipOptions) -> anyhow::Result<OwnerMap> {
    let (mut uids, mut gids) = (ownership.translate_uid.clone(), ownership.translate_gid.clone());
    if let Some(squash) = ownership.squash {
        let daemon = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        let (uid_rules, gid_rules) = squash.rules(daemon);
        uids.extend(uid_rules);
        gids.extend(gid_rules);
    }
    Ok(OwnerMap {
        uids: UidMap::new(&uids).context("the translations of uids contradict each other")?,
        gids: GidMap::new(&gids).context("the translations of gids contradict each other")?,
    })
}
