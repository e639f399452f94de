//! How a mount is put together: a connection to a daemon, and on it the threads that carry messages.

use std::{io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use transom_guest::{
    device::DeviceError,
    dma::{DmaBuffer, DmaOps, WhenFull},
    ring::Ring,
};
use transom_pace::{Pace, Watchers};
use transom_wire::config::QUEUE_FIRST_REQUEST;

use super::{
    Mount, MountError, Options, Stopper,
    attach::Place,
    backlog::Backlog,
    company::Company,
    kernel::Kernel,
    lane::{self, Lane, Memory},
    passthrough::Passthrough,
    priority::Priority,
    queues,
    reconnect::{Reconnect, Supervisor},
    served::Served,
    shared::Shared,
    single::Single,
    slots::Slots,
};
use transom_user::{arena::Arena, share::Builder, transport::VhostUser, window::WindowUse};

/// Requests in flight of each thread; more wait their turn. A slot's pages are only used once touched.
const IN_FLIGHT_MAX: u16 = 256;
/// Of the arena, for the rings and the high-priority messages: about 100 KiB a queue.
const POOL_LEN_PER_QUEUE: usize = 256 << 10;
/// How long a daemon may take for its answer to INIT.
const INIT_MAX: Duration = Duration::from_secs(10);

/// A connection to a daemon, before threads carry anything over it.
pub(super) struct Parts {
    device: VhostUser,
    priority: Priority,
    pub(super) rings: Vec<Ring>,
    chains_max: u16,
    memory: Arc<Memory>,
}

/// Makes one thread's part after the other, each with its descriptor of `/dev/fuse`; nothing once there is no queue left.
pub(super) type LaneMaker = Box<dyn FnMut(Arc<Kernel>) -> Option<Lane>>;

impl Parts {
    /// A connection with memory of its own. Blocks while it is negotiated, with a bound.
    pub(super) fn connect(source: &Builder, options: &Options) -> Result<Self, MountError> {
        let lanes_max = options.threads.min(source.queues_max()).max(1);
        let pool_len = (usize::from(lanes_max) + QUEUE_FIRST_REQUEST) * POOL_LEN_PER_QUEUE + Priority::MEMORY_LEN;
        let pool_len = pool_len.next_multiple_of(rustix::param::page_size());
        let slots_len = usize::from(lanes_max) * Slots::len_bytes(IN_FLIGHT_MAX);
        let arena = Arc::new(Arena::new(pool_len + slots_len).map_err(MountError::Memory)?);
        let window_use = if options.passthrough { WindowUse::Files } else { WindowUse::Memory };
        let device = source.transport(&arena, window_use)?;
        let (pool, memory) = arena.pool_and_rest(pool_len, WhenFull::Fail);
        let memory = Arc::new(Memory { memory, _arena: Arc::clone(&arena) });
        let ops: Arc<dyn DmaOps> = Arc::new(pool);

        let queues = queues::start(&device, &ops, lanes_max, IN_FLIGHT_MAX)?;
        let messages = DmaBuffer::new(&ops, Priority::MEMORY_LEN).map_err(DeviceError::from)?;
        let priority = Priority::new(queues.priority, messages);
        Ok(Self { device, priority, rings: queues.requests, chains_max: queues.chains_max, memory })
    }

    /// What all threads have in common, and what each is made of, without a descriptor of `/dev/fuse`.
    pub(super) fn share(
        self,
        options: &Options,
        backlog: Arc<Backlog>,
        reconnect: Option<Arc<Reconnect>>,
    ) -> io::Result<(Arc<Shared>, LaneMaker)> {
        let Self { device, priority, rings, chains_max, memory } = self;
        let passthrough = Passthrough::new(options.passthrough, device.files().cloned(), rings.len());
        let kept = if reconnect.is_some() { usize::from(chains_max) + 1 } else { 0 };
        let shared = Arc::new(Shared::new(device, priority, passthrough, backlog, reconnect)?);
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let watchers = Arc::new(Watchers::new(processors.saturating_sub(1)));
        let (poll_max_ns, common) = (options.poll_max_ns, Arc::clone(&shared));
        let threads = rings.len();
        let mut rings = rings.into_iter().enumerate();
        let lane: LaneMaker = Box::new(move |kernel| {
            let (index, ring) = rings.next()?;
            Some(Lane {
                index,
                queue: (index + QUEUE_FIRST_REQUEST) as u16,
                kernel,
                shared: Arc::clone(&common),
                ring,
                slots: Slots::new(index * Slots::len_bytes(IN_FLIGHT_MAX), chains_max),
                memory: Arc::clone(&memory),
                in_flight: vec![lane::InFlight::default(); usize::from(chains_max) + 1],
                kept: vec![Vec::new(); kept],
                pace: Pace::new(poll_max_ns.into(), &watchers),
                company: Company::default(),
                single: Single::new(poll_max_ns, threads, processors),
            })
        });
        Ok((shared, lane))
    }

    pub(super) fn run(
        self,
        place: Place,
        kernel: Kernel,
        source: Builder,
        options: Options,
    ) -> Result<Mount, MountError> {
        let path = place.path().to_owned();
        let backlog = Arc::new(Backlog::default());
        let reconnect = options.reconnect.map(|_| Reconnect::new()).transpose().map_err(MountError::Threads)?;
        let reconnect = reconnect.map(Arc::new);
        let shared = self.share(&options, Arc::clone(&backlog), reconnect.clone());
        let (shared, mut lane) = shared.map_err(MountError::Threads)?;
        let served = Arc::new(Served::new(Arc::clone(&shared)));
        // Dropped on an error, which unmounts.
        let stopper = Stopper { served: Arc::clone(&served), place: Arc::new(Mutex::new(Some(place))) };
        let mut mount = Mount { stopper, path, lanes: 0, threads: Vec::new() };
        let mut kernels = vec![Arc::new(kernel)];
        let gone = DeviceError::Transport(transom_guest::transport::TransportError::Gone);
        let mut first = lane(Arc::clone(&kernels[0])).ok_or(gone)?;
        first.negotiate(INIT_MAX)?;
        let mut lanes = vec![first];
        loop {
            let kernel = Arc::new(kernels[0].another().map_err(MountError::Threads)?);
            let Some(lane) = lane(Arc::clone(&kernel)) else { break };
            lanes.push(lane);
            kernels.push(kernel);
        }
        // It holds what all have in common.
        drop(lane);
        mount.lanes = lanes.len();
        shared.serve(kernels.clone());
        drop(shared);
        if let Some(reconnect) = reconnect {
            let supervisor = Supervisor { served, reconnect, kernels, backlog, source, options };
            mount.spawn("transom-again".into(), move || supervisor.run(lanes))?;
            return Ok(mount);
        }
        drop(kernels);
        lanes.into_iter().try_for_each(|lane| mount.spawn(lane.name(), move || drop(lane.run())))?;
        Ok(mount)
    }
}
