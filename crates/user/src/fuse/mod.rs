//! A share mounted on this machine: the kernel's own FUSE client is the guest of a virtio-fs daemon.
//!
//! Messages go from `/dev/fuse` over real virtqueues to the daemon and back as they are. Each thread is a [`lane`] with a
//! clone of `/dev/fuse`, a request queue and [`slots`] in the memory shared with the daemon; FORGET and INTERRUPT go by
//! the high-priority queue of all ([`priority`]). [`shared`] is how a mount ends, [`attach`] how it comes into the tree.
//!
//! ```no_run
//! use transom_user::{fuse, mount};
//!
//! let share = mount::Mount::builder().shared_dir("/srv/share");
//! let mut mount = fuse::Mount::start(share, "/mnt", fuse::Options::default())?;
//! println!("{}", std::fs::read_dir("/mnt")?.count());
//! mount.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attach;
mod backlog;
mod init;
mod kernel;
mod lane;
mod negotiate;
mod notify;
mod options;
mod pace;
mod passthrough;
mod priority;
mod queues;
mod reconnect;
mod reply_room;
mod served;
mod shared;
mod sleep;
mod slots;
mod uring;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::Mutex;
use thiserror::Error;
use transom_guest::{
    device::DeviceError,
    dma::{DmaBuffer, DmaOps, WhenFull},
    ring::Ring,
};
use transom_wire::config::QUEUE_FIRST_REQUEST;

use crate::{
    arena::Arena,
    mount::{Builder, MountError as ShareError},
    transport::VhostUser,
    window::WindowUse,
};
use attach::{Force, Place};
use backlog::Backlog;
use kernel::Kernel;
use lane::{Lane, Memory};
use pace::Pace;
use passthrough::Passthrough;
use priority::Priority;
use reconnect::{Reconnect, Supervisor};
use served::Served;
use shared::Shared;
use slots::Slots;
use uring::Rings;

pub use negotiate::InitError;
pub use notify::{Notifier, Stale};
pub use options::{Options, UnknownOption};
pub use passthrough::{Obstacle, PassthroughCounts};
pub use reconnect::Unfit;
pub use uring::NoRings;

/// Requests in flight of each thread; more wait their turn. A slot's pages are only used once touched.
const IN_FLIGHT_MAX: u16 = 256;
/// Of the arena, for the rings and the high-priority messages: about 100 KiB a queue.
const POOL_LEN_PER_QUEUE: usize = 256 << 10;
/// How long a daemon may take for its answer to INIT.
const INIT_MAX: Duration = Duration::from_secs(10);

/// A share in the tree of directories, until this is dropped.
///
/// Dropping it takes it out of the tree at once and ends it: whoever still uses it gets ENOTCONN.
pub struct Mount {
    stopper: Stopper,
    path: PathBuf,
    /// Threads that carry requests.
    lanes: usize,
    threads: Vec<JoinHandle<()>>,
    io_uring: Result<(), NoRings>,
}

/// Ends a mount that somebody else waits for.
#[derive(Clone)]
pub struct Stopper {
    served: Arc<Served>,
    /// Absent once it is unmounted or left alone. Held while it is unmounted, which takes answers of the mount's threads: they
    /// do not use it.
    place: Arc<Mutex<Option<Place>>>,
}

/// Why a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum End {
    /// Somebody has unmounted it.
    #[error("it was unmounted")]
    Unmounted,
    /// This process ended it.
    #[error("it was stopped")]
    Stopped,
    /// The daemon has closed the connection, or died.
    #[error("the daemon is gone")]
    Gone,
    /// The daemon does what no device may, and is not talked to any more.
    #[error("the daemon broke the protocol: {0}")]
    Broken(&'static str),
    /// A system call of this side has failed.
    #[error("the kernel refuses: {0}")]
    Kernel(rustix::io::Errno),
}

/// Why a share is not mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// There is no share.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The daemon's device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for requests.
    #[error("cannot make memory to share with the daemon")]
    Memory(#[source] io::Error),
    /// It cannot be mounted there.
    #[error("cannot mount at {path:?}")]
    Place {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Kernel and daemon do not come together.
    #[error(transparent)]
    Init(#[from] InitError),
    /// This system's fault.
    #[error("cannot start the mount's threads")]
    Threads(#[source] io::Error),
    /// A daemon that is to take the place of another one cannot.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// What a later daemon needs would be hidden by the mount itself.
    #[error(
        "{path:?} cannot be reached once {mountpoint:?} is mounted on: with reconnect, mount elsewhere than at or above it"
    )]
    Hidden {
        /// The shared directory, the socket or the daemon's program.
        path: PathBuf,
        /// Where it was to be mounted.
        mountpoint: PathBuf,
    },
    /// Both were asked for.
    #[error(
        "passthrough and reconnect do not go together: a file that is passed through stays the one that was opened, \
         whatever a new daemon finds at its name"
    )]
    Apart,
}

impl Mount {
    /// Mounts the share of `source` at `mountpoint`, and returns once it can be used.
    ///
    /// Of the builder, the share, the daemon and the number of queues count; the memory is this module's own. With root it
    /// mounts by itself, else through `fusermount3`. Blocks while daemon and kernel negotiate, with a bound.
    /// With [`Options::reconnect`] relative paths stay what they are now, wherever this process goes later.
    pub fn start(source: Builder, mountpoint: impl AsRef<Path>, options: Options) -> Result<Self, MountError> {
        if options.passthrough && options.reconnect.is_some() {
            return Err(MountError::Apart);
        }
        let source = match options.reconnect {
            Some(_) => reconnect::reachable(source, mountpoint.as_ref())?,
            None => source,
        };
        let parts = Parts::connect(&source, &options)?;
        let name = attach::source_name(source.source_path());
        let (place, kernel) = Place::mount(mountpoint.as_ref(), &name, &options)?;
        // From here on `Mount` takes it out of the tree again.
        parts.run(place, kernel, source, options)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the kernel what it must not believe any more.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::downgrade(self.served()))
    }

    /// Requests queues, and threads, that it has.
    pub fn threads(&self) -> usize {
        self.lanes
    }

    /// The process id of the daemon that was started for it, while there is one.
    pub fn daemon_id(&self) -> Option<u32> {
        self.served().shared()?.device.daemon_id()
    }

    /// Why it has ended, if it has.
    pub fn cause(&self) -> Option<End> {
        self.served().cause()
    }

    /// Opens so far of a mount with [`Options::passthrough`].
    ///
    /// Errors: why nothing is passed through, and all is served by requests.
    pub fn passthrough(&self) -> Result<PassthroughCounts, Obstacle> {
        let Some(shared) = self.served().shared() else { return Ok(PassthroughCounts::default()) };
        shared.passthrough.obstacle().map_or_else(|| Ok(shared.passthrough.counts()), Err)
    }

    /// Errors: why requests do not come by io_uring, but by read(2).
    pub fn io_uring(&self) -> Result<(), NoRings> {
        self.io_uring
    }

    fn served(&self) -> &Arc<Served> {
        &self.stopper.served
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(MountError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Blocks until it ends: it is unmounted, or the daemon is gone.
    pub fn wait(&mut self) -> End {
        self.threads.drain(..).for_each(|thread| {
            // A thread that has panicked has ended the mount as well as any other way.
            let _ = thread.join();
        });
        let end = self.served().cause().unwrap_or(End::Stopped);
        self.served().end(end);
        if end == End::Unmounted {
            self.stay();
        }
        end
    }

    /// Unmounts it, and returns when all is over.
    ///
    /// Errors: EBUSY while somebody uses it, and what umount(2) or `fusermount3` say; it then goes on.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.stopper.unmount()?;
        self.wait();
        Ok(())
    }

    /// For threads that do not have the mount.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Leaves the place in the tree as it is when this is dropped; a share that has ended stays there and answers ENOTCONN,
    /// rather than let what lies beneath be taken for it.
    pub fn stay(&mut self) {
        *self.stopper.place.lock() = None;
    }
}

impl Stopper {
    /// Unmounts it. Errors: EBUSY while somebody uses it, and what umount(2) or `fusermount3` say; it then goes on.
    pub fn unmount(&self) -> io::Result<()> {
        self.leave(Force::None)
    }

    /// Takes it out of the tree at once; it ends when nobody uses it any more, which [`Mount::wait`] waits for.
    pub fn detach(&self) -> io::Result<()> {
        self.leave(Force::Lazy)
    }

    /// Ends it where it is: every request that waits and every later one fails, until somebody unmounts it.
    pub fn abort(&self) {
        self.served.end(End::Stopped);
    }

    fn leave(&self, force: Force) -> io::Result<()> {
        let mut place = self.place.lock();
        if let Some(there) = &*place {
            there.unmount(force)?;
            *place = None;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.served().cause() != Some(End::Unmounted)
            && let Err(error) = self.stopper.detach()
        {
            tracing::warn!(path = ?self.path, %error, "the share stays in the tree, and is not served any more");
        }
        self.stopper.abort();
        self.wait();
    }
}

/// A connection to a daemon, before threads carry anything over it.
struct Parts {
    device: VhostUser,
    priority: Priority,
    rings: Vec<Ring>,
    chains_max: u16,
    memory: Arc<Memory>,
}

/// Makes one thread's part after the other, each with its descriptor of `/dev/fuse`; nothing once there is no queue left.
type LaneMaker = Box<dyn FnMut(Arc<Kernel>) -> Option<Lane>>;

impl Parts {
    /// A connection with memory of its own. Blocks while it is negotiated, with a bound.
    fn connect(source: &Builder, options: &Options) -> Result<Self, MountError> {
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
    fn share(
        self,
        options: &Options,
        backlog: Arc<Backlog>,
        reconnect: Option<Arc<Reconnect>>,
    ) -> io::Result<(Arc<Shared>, LaneMaker)> {
        let Self { device, priority, rings, chains_max, memory } = self;
        let passthrough = Passthrough::new(options.passthrough, device.files().cloned());
        let kept = if reconnect.is_some() { usize::from(chains_max) + 1 } else { 0 };
        let shared = Arc::new(Shared::new(device, priority, passthrough, backlog, reconnect)?);
        let watchers_max = std::thread::available_parallelism().map_or(1, |count| count.get()).saturating_sub(1);
        let (poll_max_ns, common) = (options.poll_max_ns, Arc::clone(&shared));
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
                pace: Pace::new(poll_max_ns, watchers_max),
            })
        });
        Ok((shared, lane))
    }

    fn run(self, place: Place, kernel: Kernel, source: Builder, options: Options) -> Result<Mount, MountError> {
        let path = place.path().to_owned();
        let backlog = Arc::new(Backlog::default());
        let reconnect = options.reconnect.map(|_| Reconnect::new()).transpose().map_err(MountError::Threads)?;
        let reconnect = reconnect.map(Arc::new);
        let uring = Rings::new(&options, self.rings.len() as u16, self.chains_max, &self.memory);
        let shared = self.share(&options, Arc::clone(&backlog), reconnect.clone());
        let (shared, mut lane) = shared.map_err(MountError::Threads)?;
        let served = Arc::new(Served::new(Arc::clone(&shared)));
        // Dropped on an error, which unmounts.
        let stopper = Stopper { served: Arc::clone(&served), place: Arc::new(Mutex::new(Some(place))) };
        let mut mount = Mount { stopper, path, lanes: 0, threads: Vec::new(), io_uring: Ok(()) };
        let mut kernels = vec![Arc::new(kernel)];
        let gone = DeviceError::Transport(transom_guest::transport::TransportError::Gone);
        let mut first = lane(Arc::clone(&kernels[0])).ok_or(gone)?;
        let by_ring = first.negotiate(INIT_MAX, uring.is_ok())?;
        let uring = uring.and_then(|uring| by_ring.then_some(uring).ok_or(NoRings::Kernel));
        mount.io_uring = uring.as_ref().map(|_| ()).map_err(|why| *why);
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
        match uring {
            Ok(uring) => {
                uring.carry(lanes).try_for_each(|lane| mount.spawn(lane.name(), move || lane.run()))?;
            }
            Err(_) => {
                lanes.into_iter().try_for_each(|lane| mount.spawn(lane.name(), move || drop(lane.run())))?;
            }
        }
        Ok(mount)
    }
}
