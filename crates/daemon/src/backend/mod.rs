//! The vhost-user back end: accepts one front end after another and answers their requests through a [`Server`].
//!
//! [`serve`] is the entry. [`device`] is what a front end negotiates with; [`memory`] chooses what it uses of the
//! guest's memory, and [`view`] is how a thread accesses it. Each [`queue`] has a [`worker`], which takes chains
//! ([`next`], [`chain`], [`descriptors`]) off the ring and serves them itself or hands them ([`deferred`]) to the
//! [`pool`], together with their memory ([`spares`]). [`poll`] decides how long a worker polls its ring before it
//! sleeps, [`monitor`] counts, [`dirty_log`] marks written memory for a migration, [`again`] serves what a dead
//! process has left in flight, [`device_state`] transfers the session's state unless the guest goes on here
//! ([`attempt`]), [`notify`] tells the guest of changes over the notification
//! queue, and [`shmem`] requests mappings from the front end. Locks: a vring's mutex (inside the
//! vhost-user-backend crate), within which those of [`in_flight`], [`dirty_log`] and [`attempt`] may be taken; none is
//! held while a request is served.

mod access_platform;
mod again;
mod attempt;
mod chain;
mod deferred;
mod descriptors;
mod device;
mod device_state;
mod dirty_log;
mod in_flight;
mod memory;
mod monitor;
mod next;
mod notify;
mod poll;
mod pool;
mod queue;
mod rate;
mod shmem;
mod spares;
mod versions;
mod view;
mod vring;
mod worker;

use std::{
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rustix::io::Errno;
use tracing::{debug, info, warn};
use transom_host::{
    journal::Journal,
    notifications::Notifications,
    server::{FileSystem, Server},
    window::Window,
};
use transom_wire::config::TAG_LEN;
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{Error as DaemonError, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use device::Device;
use dirty_log::RegionLog;
pub use monitor::Monitor;
pub use rate::RateLimits;
pub use versions::VersionsRegion;

/// The guest's memory, as received from the front end. Each region has its part of the front end's dirty log.
type GuestRam = GuestMemoryMmap<RegionLog>;

/// The guest's present memory.
type Memory = GuestMemoryAtomic<GuestRam>;

/// The connection to a front end.
type VhostUserConnection<F> = VhostUserDaemon<Arc<Device<F>>>;

/// How the back end behaves.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    /// The tag under which the guest mounts the share, if the front end asks the back end for it
    /// (VHOST_USER_PROTOCOL_F_CONFIG).
    pub tag: Option<[u8; TAG_LEN]>,
    /// Number of request queues, in addition to the high-priority queue.
    pub request_queues: u16,
    /// The longest time that a worker polls its ring before it sleeps; zero sleeps at once.
    pub poll_max: Duration,
    /// What the guest may do in a second, if that is limited.
    pub rate: Option<RateLimits>,
    /// Number of threads for requests that wait for the disk; 0 lets the queue's worker wait.
    pub pool_threads: usize,
    /// The version table to offer, for a file system that stamps its changes.
    pub versions: Option<VersionsRegion>,
    /// The changes to tell the guest over a notification queue, if one is offered.
    pub notifications: Option<Arc<Notifications>>,
    /// The window to offer, for file systems that map files.
    pub window: Option<Arc<Window>>,
    /// Listen again after a front end disconnects.
    pub keep_serving: bool,
    /// Whether the session is this process's own.
    pub ownership: Arc<Ownership>,
    /// Let the front end migrate the device: offer a log of the memory that it writes, and its state. A transfer of the
    /// state fails if the peer makes no progress for this time.
    pub migration: Option<Duration>,
    /// Where requests in flight are recorded, if the session is to survive this process.
    pub journal: Option<Arc<Journal>>,
}

/// Whether the session is this process's own. While another process may still go on with it, both have its locks, and
/// the end of the session here would release them there.
#[derive(Debug, Default)]
pub struct Ownership {
    is_shared: AtomicBool,
}

impl Ownership {
    /// The session comes from another process, which may still go on with it.
    pub fn share(&self) {
        self.is_shared.store(true, Ordering::SeqCst);
    }

    /// The session is this process's own from now on.
    pub fn take(&self) {
        self.is_shared.store(false, Ordering::SeqCst);
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::SeqCst)
    }
}

/// How long a peer may make no progress in a transfer of the state. The front end holds up its guest meanwhile.
pub const MIGRATION_IDLE_MAX: Duration = Duration::from_secs(60);

/// Serves front ends that connect to `listener`.
///
/// Blocks. Returns when the first front end has disconnected. With `keep_serving`, returns only if the socket fails.
pub fn serve<F: FileSystem + 'static>(
    listener: UnixListener,
    server: Arc<Server<F>>,
    config: &BackendConfig,
    monitor: &Arc<Monitor>,
) -> anyhow::Result<()> {
    let mut listener = Listener::from(listener);
    loop {
        let memory = Memory::new(GuestRam::new());
        let device = Arc::new(Device::new(server.clone(), config, monitor)?);
        let mut daemon = VhostUserDaemon::new("vhost-user".into(), device.clone(), memory)
            .map_err(|error| anyhow::anyhow!("{error}"))
            .context("cannot start the queues' workers")?;
        if let Err(error) = device.attach(&daemon.get_epoll_handlers()) {
            // Dropping it would join threads that nothing ends.
            std::mem::forget(daemon);
            return Err(error).context("cannot watch for the end of a front end");
        }
        debug!("ready for a front end");
        accept(&mut daemon, &mut listener).inspect_err(|_| device.close())?;
        info!("front end connected");
        match daemon.wait() {
            Ok(()) | Err(DaemonError::HandleRequest(ProtocolError::Disconnected | ProtocolError::PartialMessage)) => {
                info!("front end disconnected");
            }
            Err(error) => warn!(%error, "front end dropped for a protocol error"),
        }
        if config.ownership.is_shared() {
            // Without any destructor.
            std::process::exit(1);
        }
        // End the workers first, then the requests that they handed over, then the session.
        device.close();
        drop(daemon);
        device.shut_down();
        if !config.keep_serving {
            return Ok(());
        }
    }
}

/// Pause before accepting again. The missing resource is freed when another process ends, and not sooner for frequent
/// attempts.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Waits for a front end and starts its session. Blocks, also while descriptors or memory are short.
fn accept<F: FileSystem + 'static>(daemon: &mut VhostUserConnection<F>, listener: &mut Listener) -> anyhow::Result<()> {
    let mut is_told = false;
    while let Err(error) = daemon.start(listener) {
        if !is_shortage(&error) {
            anyhow::bail!("cannot accept a front end: {error}");
        }
        if !is_told {
            warn!(%error, "cannot accept a front end yet");
            is_told = true;
        }
        thread::sleep(ACCEPT_AGAIN_AFTER);
    }
    Ok(())
}

/// Returns whether the machine is short of a resource, as opposed to the connection having failed.
fn is_shortage(error: &DaemonError) -> bool {
    let source = match error {
        DaemonError::CreateBackendListener(ProtocolError::SocketError(source)) | DaemonError::StartDaemon(source) => {
            source
        }
        _ => return false,
    };
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];
    Errno::from_io_error(source).is_some_and(|errno| shortages.contains(&errno))
}
