//! How a mount starts: a connection to a daemon, a mount point, and the workers that carry messages between them.

use std::{io, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use transom_guest::{
    device::DeviceError,
    dma::{DmaBuffer, DmaOps, WhenFull},
    ring::Ring,
    transport::TransportError,
};
use transom_polling::{AdaptivePoller, PollerLimit};
use transom_user::{arena::Arena, share::Builder, transport::VhostUser, window::WindowUse};
use transom_wire::config::QUEUE_FIRST_REQUEST;

use super::{
    Mount, MountError, Options, Stopper,
    backlog::Backlog,
    coherence::{self, Coherence, NameExpirer},
    connection::Connection,
    daemon_client::DaemonClient,
    fuse_device::FuseDevice,
    hiprio::HiprioQueue,
    lone_caller::LoneCaller,
    mount_point::MountPoint,
    mount_state::MountState,
    negotiate,
    passthrough::Passthrough,
    queues,
    reconnect::{self, Reconnect, Supervisor},
    request_queue::{RequestQueue, SlotMemory},
    slots::Slots,
    worker::QueueWorker,
};

/// Requests in flight of each worker; more wait in the backlog. Pages of a slot are not used before the slot is.
const IN_FLIGHT_MAX: u16 = 256;
/// The part of the arena for rings and high-priority messages. A queue takes about 100 KiB.
const POOL_LEN_PER_QUEUE: usize = 256 << 10;
/// How long a daemon may take to reply to INIT.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a daemon that no worker uses yet.
pub(super) struct PendingConnection {
    device: VhostUser,
    hiprio: HiprioQueue,
    rings: Vec<Ring>,
    /// Requests that can be in flight on each ring.
    chains_max: u16,
    memory: Arc<SlotMemory>,
    coherence: Option<Arc<Coherence>>,
}

/// Creates the connection's workers one by one, each for a descriptor of `/dev/fuse`. Returns `None` when every queue
/// has one.
pub(super) type WorkerFactory = Box<dyn FnMut(Arc<FuseDevice>) -> Option<QueueWorker>>;

impl PendingConnection {
    /// Connects to a daemon, with memory of the connection's own. Blocks while features are negotiated, with a bound.
    ///
    /// # Errors
    /// There is no daemon, its device cannot be used, or memory ran out.
    pub(super) fn connect(source: &Builder, options: &Options) -> Result<Self, MountError> {
        let queues_max = source.queues_max().map_or(options.threads, |most| most.min(options.threads)).max(1);
        let pool_len = (usize::from(queues_max) + QUEUE_FIRST_REQUEST) * POOL_LEN_PER_QUEUE + HiprioQueue::MEMORY_LEN;
        let pool_len = pool_len.next_multiple_of(rustix::param::page_size());
        let slots_len = usize::from(queues_max) * Slots::len_bytes(IN_FLIGHT_MAX);
        let arena = Arc::new(Arena::new(pool_len + slots_len).map_err(MountError::Memory)?);
        let window_use = if options.passthrough { WindowUse::Files } else { WindowUse::Memory };
        let device = source.transport(&arena, window_use)?;
        let coherence = options.coherent.then(|| Coherence::new(&device)).transpose()?.map(Arc::new);
        let (pool, memory) = arena.pool_and_rest(pool_len, WhenFull::Fail);
        let memory = Arc::new(SlotMemory { memory, _arena: Arc::clone(&arena) });
        let ops: Arc<dyn DmaOps> = Arc::new(pool);
        let queues = queues::start(&device, &ops, queues_max, IN_FLIGHT_MAX)?;
        let messages = DmaBuffer::new(&ops, HiprioQueue::MEMORY_LEN).map_err(DeviceError::from)?;
        let hiprio = HiprioQueue::new(queues.hiprio, messages);
        Ok(Self { device, hiprio, rings: queues.requests, chains_max: queues.chains_max, memory, coherence })
    }

    /// Returns the number of request queues.
    pub(super) fn queue_count(&self) -> usize {
        self.rings.len()
    }

    /// Splits the connection into what its workers share and a factory of workers.
    ///
    /// # Errors
    /// An eventfd could not be created.
    pub(super) fn into_workers(
        self,
        options: &Options,
        backlog: Arc<Backlog>,
        reconnect: Option<Arc<Reconnect>>,
    ) -> io::Result<(Arc<Connection>, WorkerFactory)> {
        let Self { device, hiprio, rings, chains_max, memory, coherence } = self;
        let passthrough = Arc::new(Passthrough::new(options.passthrough, device.files().cloned(), rings.len()));
        let connection = Arc::new(Connection::new(device, hiprio, passthrough, coherence, backlog, reconnect)?);
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let limit = Arc::new(PollerLimit::new(processors.saturating_sub(1)));
        let (poll_max_ns, workers_connection) = (options.poll_max_ns, Arc::clone(&connection));
        let workers = rings.len();
        let mut rings = rings.into_iter().enumerate();
        let factory: WorkerFactory = Box::new(move |device| {
            let (index, ring) = rings.next()?;
            let slots = Slots::new(index * Slots::len_bytes(IN_FLIGHT_MAX), chains_max);
            let queue = RequestQueue::new((index + QUEUE_FIRST_REQUEST) as u16, ring, slots, Arc::clone(&memory));
            let poller = AdaptivePoller::new(poll_max_ns.into(), &limit);
            let lone_caller = LoneCaller::new(poll_max_ns, workers, processors);
            Some(QueueWorker::new(index, Arc::clone(&workers_connection), device, queue, poller, lone_caller))
        });
        Ok((connection, factory))
    }

    /// Negotiates INIT and starts the workers. Consumes the mount point: after an error it is unmounted.
    ///
    /// # Errors
    /// Kernel and daemon did not agree, or threads or descriptors could not be created.
    pub(super) fn start(
        self,
        mount_point: MountPoint,
        device: FuseDevice,
        source: Builder,
        options: Options,
    ) -> Result<Mount, MountError> {
        let path = mount_point.path().to_owned();
        let backlog = Arc::new(Backlog::default());
        let reconnect = options.reconnect.map(|_| Reconnect::new()).transpose().map_err(MountError::Threads)?;
        let reconnect = reconnect.map(Arc::new);
        let split = self.into_workers(&options, Arc::clone(&backlog), reconnect.clone());
        let (connection, mut new_worker) = split.map_err(MountError::Threads)?;
        let state = Arc::new(MountState::new(Arc::clone(&connection)));
        // Dropping the mount unmounts it, so an error below does.
        let stopper = Stopper { state: Arc::clone(&state), mount_point: Arc::new(Mutex::new(Some(mount_point))) };
        let mut mount = Mount { stopper, path, workers: 0, threads: Vec::new() };
        let mut devices = vec![Arc::new(device)];
        let gone = DeviceError::Transport(TransportError::Gone);
        let mut first = new_worker(Arc::clone(&devices[0])).ok_or(gone)?;
        let mut client = first.daemon_client().map_err(negotiate::InitError::End)?;
        negotiate::negotiate(&mut client, INIT_TIMEOUT)?;
        if !source.starts_daemon() {
            check_kinds(&mut client, &source, &mount)?;
        }
        drop(client);
        let mut workers = vec![first];
        loop {
            let device = Arc::new(devices[0].another().map_err(MountError::Threads)?);
            let Some(worker) = new_worker(Arc::clone(&device)) else { break };
            workers.push(worker);
            devices.push(device);
        }
        // The factory holds a reference to the connection.
        drop(new_worker);
        mount.workers = workers.len();
        connection.devices.set(devices.clone());
        if let Some(coherence) = connection.coherence.clone() {
            coherence.prepare_abort(&mount.path);
            let (names, expirer) = NameExpirer::new();
            let (shared, connected) = (Arc::clone(&coherence), Arc::clone(&connection));
            mount.spawn(coherence::NAMES_THREAD_NAME.into(), move || {
                coherence::expire_until_end(expirer, &shared, &connected);
            })?;
            let connection = Arc::clone(&connection);
            let scan = move || coherence::scan_until_end(&coherence, &connection, &names);
            mount.spawn(coherence::THREAD_NAME.into(), scan)?;
        }
        drop(connection);
        if let Some(reconnect) = reconnect {
            let supervisor = Supervisor { state, reconnect, devices, backlog, source, options };
            mount.spawn("transom-again".into(), move || supervisor.run(workers))?;
            return Ok(mount);
        }
        drop(devices);
        workers.into_iter().try_for_each(|worker| mount.spawn(worker.thread_name(), move || drop(worker.run())))?;
        Ok(mount)
    }
}

/// Checks that a daemon that already runs shares a directory if `mount` is on one, and a file otherwise.
fn check_kinds(client: &mut DaemonClient<'_>, source: &Builder, mount: &Mount) -> Result<(), MountError> {
    let is_dir_mounted_on = mount.stopper.mount_point.lock().as_ref().is_some_and(MountPoint::is_dir);
    match reconnect::is_directory_shared(client)? {
        Some(is_dir) if is_dir != is_dir_mounted_on => Err(MountError::Kind {
            shared: source.source_path().unwrap_or(Path::new("the share")).to_owned(),
            mountpoint: mount.path.clone(),
            is_dir,
        }),
        _ => Ok(()),
    }
}
