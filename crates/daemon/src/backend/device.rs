//! The device that a front end negotiates with: features, queues, configuration, stop and reset.

use std::{
    fs::File,
    io,
    num::NonZero,
    os::fd::{AsFd as _, AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};
use transom_host::{
    journal::QueueSlots,
    notifications::Notifications,
    server::{FileSystem, Server},
    window::Window,
};
use transom_polling::PollerLimit;
use transom_wire::{
    config::{Config, FEATURE_NOTIFICATION, NotifyingConfig, QUEUE_NOTIFICATION},
    notification,
    window::{VERSIONS_ID, WINDOW_ID},
};
use vhost::vhost_user::{
    Backend,
    message::{
        VhostTransferStateDirection, VhostTransferStatePhase, VhostUserProtocolFeatures, VhostUserShMemConfig,
        VhostUserVirtioFeatures,
    },
};
use vhost_user_backend::{VhostUserBackend, VringEpollHandler, VringT as _};
use virtio_bindings::bindings::{
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use zerocopy::IntoBytes;

use super::{
    BackendConfig, GuestRam, Memory,
    access_platform::AccessPlatform,
    attempt::Attempts,
    device_state::{DeviceState, Error as StateError, refused},
    dirty_log::{DirtyLog, RegionLog},
    in_flight::QUEUE_SIZE_MAX,
    memory::{self, CurrentMemory},
    monitor::Monitor,
    poll::RingPoller,
    pool::Pool,
    queue::Queue,
    rate::Rate,
    shmem::Requests,
    spares::Spares,
    versions::{Offer, VersionsRegion},
    vring::Vring,
    worker::WorkerState,
};

/// The queue of FORGET and INTERRUPT (virtio 1.3 §5.11.2).
const HIPRIO: usize = 0;

/// One virtio-fs device, for as long as one front end is connected.
pub(super) struct Device<F: FileSystem + 'static> {
    server: Arc<Server<F>>,
    config: Option<NotifyingConfig>,
    queues: Vec<Arc<Queue<F>>>,
    /// Each is locked only by the queue's own thread.
    workers: Vec<Mutex<WorkerState>>,
    /// What each queue's thread waits in. Weak, because the crate's handlers own the device.
    handlers: OnceLock<Vec<Weak<VringEpollHandler<Arc<Self>>>>>,
    /// The channel for requests of the back end. Kept even if none are sent: User Mode Linux loses its interrupts when
    /// the channel closes.
    requests: Mutex<Option<Backend>>,
    window: Option<Arc<Window>>,
    versions: Option<VersionsRegion>,
    offer: Offer,
    notifications: Option<Arc<Notifications>>,
    /// The driver has accepted VIRTIO_FS_F_NOTIFICATION: queue 1 is for notifications.
    notifies: AtomicBool,
    /// The guest's memory as requests may use it; the vhost crate's copy is not restricted: see
    /// [`Device::update_memory`].
    memory: Memory,
    current: Arc<CurrentMemory>,
    log: Arc<DirtyLog>,
    /// Whether the front end may migrate the device: how long a peer may make no progress.
    migration: Option<Duration>,
    state: DeviceState,
    attempts: Arc<Attempts>,
    access_platform: AccessPlatform,
    /// Readable once the queues' threads should end. A separate descriptor, because the crate never signals its own.
    exit: OwnedFd,
}

impl<F: FileSystem + 'static> Device<F> {
    pub(super) fn new(server: Arc<Server<F>>, config: &BackendConfig, monitor: &Arc<Monitor>) -> io::Result<Self> {
        let memory = Memory::new(GuestRam::new());
        let current = Arc::new(CurrentMemory::of(&memory));
        // A driver that does not accept the notification queue numbers its queues as ever.
        let queue_count = 1 + usize::from(config.notifications.is_some()) + usize::from(config.request_queues);
        let pool = Arc::new(Pool::new(config.pool_threads));
        let log = Arc::new(DirtyLog::default());
        let attempts = Arc::new(Attempts::default());
        let rate = config.rate.map(|limits| Arc::new(Rate::new(limits)));
        let queue = |index: usize| {
            Arc::new(Queue {
                server: server.clone(),
                memory: memory.clone(),
                current: current.clone(),
                pool: pool.clone(),
                spares: Spares::default(),
                in_flight: Arc::default(),
                monitor: monitor.clone(),
                log: log.clone(),
                attempts: attempts.clone(),
                // The high-priority queue too: a guest can send any request on it.
                rate: rate.clone(),
                is_given_up: false.into(),
                slots: config.journal.as_ref().map(|journal| journal.queue(index)),
                has_left: config.journal.is_some().into(),
            })
        };
        // If there are several processors, one is left to the threads that submit the requests being polled for.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let limit = Arc::new(PollerLimit::new(processors.saturating_sub(1).max(1)));
        let worker = |queue: usize| {
            // Nobody waits for the high-priority queue: polling it would take time from threads that do wait.
            let poll_max = if queue == HIPRIO { Duration::ZERO } else { config.poll_max };
            Mutex::new(WorkerState::new(RingPoller::new(poll_max, &limit)))
        };
        let queues: Vec<_> = (0..queue_count).map(queue).collect();
        let view: Weak<Pool<_>> = Arc::downgrade(&pool);
        monitor.watch(queues.iter().map(|queue| queue.in_flight.clone()), view);
        Ok(Self {
            config: config.tag.map(|tag| NotifyingConfig {
                config: Config { tag, num_request_queues: u32::from(config.request_queues).into() },
                notify_buf_size: (notification::BUF_LEN as u32).into(),
            }),
            queues,
            requests: Mutex::default(),
            window: config.window.clone(),
            versions: config.versions.clone(),
            offer: Offer::default(),
            notifications: config.notifications.clone(),
            notifies: false.into(),
            memory: memory.clone(),
            current: current.clone(),
            log: log.clone(),
            migration: config.migration,
            state: DeviceState::default(),
            attempts,
            access_platform: AccessPlatform::new(
                config.window.is_some()
                    || config.versions.as_ref().is_some_and(|versions| !versions.front_end.maps_before_start),
            ),
            workers: (0..queue_count).map(worker).collect(),
            handlers: OnceLock::new(),
            exit: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            server,
        })
    }

    /// Registers [`Device::close`]'s event, so that it ends the threads of `handlers`, one for each queue in order.
    pub(super) fn attach(&self, handlers: &[Arc<VringEpollHandler<Arc<Self>>>]) -> io::Result<()> {
        self.handlers.get_or_init(|| handlers.iter().map(Arc::downgrade).collect());
        handlers.iter().try_for_each(|handler| {
            handler.register_listener(self.exit.as_raw_fd(), EventSet::IN, self.exit_number().into())
        })?;
        if let (Some(notifications), Some(handler)) = (&self.notifications, handlers.get(QUEUE_NOTIFICATION)) {
            let ready = notifications.as_fd().as_raw_fd();
            handler.register_listener(
                ready,
                EventSet::IN | EventSet::EDGE_TRIGGERED,
                self.notification_number().into(),
            )?;
        }
        Ok(())
    }

    /// Returns the event number of the notification queue's thread when a notification waits.
    fn notification_number(&self) -> u16 {
        self.kick_number() + 1
    }

    /// Begins or ends to use queue 1 for notifications.
    fn set_notifies(&self, notifies: bool) {
        if let Some(notifications) = &self.notifications {
            self.notifies.store(notifies, Ordering::Release);
            notifications.want(notifies);
        }
    }

    /// Returns what queue `index` tells the guest, if it is the notification queue.
    fn notifications_of(&self, index: usize) -> Option<&Notifications> {
        let is_for_them = index == QUEUE_NOTIFICATION && self.notifies.load(Ordering::Acquire);
        self.notifications.as_deref().filter(|_| is_for_them)
    }

    /// Ends the queues' threads even if the guest keeps its rings full, and drops requests that have not begun.
    pub(super) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.give_up());
        self.attempts.give_up();
        // A new eventfd's counter has room for 1, and for a second 1.
        let _ = rustix::io::write(&self.exit, &1u64.to_ne_bytes());
    }

    /// Returns the event number of `exit`: the one after the queues' events and the crate's own exit event.
    fn exit_number(&self) -> u16 {
        self.queues.len() as u16 + 1
    }

    /// Returns the event number of a queue's kick that is watched by edges. Each queue has a thread of its own, so one
    /// number does for all.
    fn kick_number(&self) -> u16 {
        self.exit_number() + 1
    }

    /// Has the queue's thread watch its kick by edges from now on: see [`Vring::watch_edges`].
    fn watch_edges(&self, vring: &Vring, thread_id: usize) {
        let handler = self.handlers.get().and_then(|handlers| handlers.get(thread_id)?.upgrade());
        if let Some(handler) = handler {
            vring.watch_edges(&handler, self.kick_number());
        }
    }

    /// Waits for the requests in flight and ends the session. Must be called after the queues' threads have ended.
    pub(super) fn shut_down(&self) {
        self.state.abandon();
        self.set_notifies(false);
        self.drain();
        if let Some(window) = &self.window {
            window.disconnect();
        }
        self.server.end_session();
        self.queues.iter().filter_map(|queue| queue.slots.as_ref()).for_each(QueueSlots::clear);
    }

    /// Starts a transfer of the session's state.
    fn transfer(
        &self,
        direction: VhostTransferStateDirection,
        phase: VhostTransferStatePhase,
        pipe: File,
    ) -> Result<(), StateError> {
        let idle_max = self.migration.ok_or(StateError::NotOffered)?;
        self.state.start(&self.server, &self.queues, (direction, phase), (pipe, &self.attempts), idle_max)
    }

    fn channel(&self) -> Option<Backend> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn drain(&self) {
        self.queues.iter().for_each(|queue| queue.in_flight.drain(|_| self.server.file_system().interrupt_all()));
    }

    /// Waits until `queue` has no request in flight. Requests that wait for a lock are set aside. Lock waits of other
    /// queues continue.
    fn drain_queue(&self, queue: &Queue<F>) {
        queue.in_flight.drain_setting_aside(|waiting| {
            if let Some(window) = &self.window {
                window.interrupt();
            }
            waiting.iter().for_each(|&unique| self.server.file_system().interrupt(unique));
        });
    }
}

impl<F: FileSystem + 'static> VhostUserBackend for Device<F> {
    type Bitmap = RegionLog;
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.queues.len()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE_MAX
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
            | self.access_platform.offered()
            | if self.notifications.is_some() { FEATURE_NOTIFICATION } else { 0 }
            | if self.migration.is_some() { VhostUserVirtioFeatures::LOG_ALL.bits() } else { 0 }
    }

    /// The front end switches the dirty log on and off by negotiating anew.
    fn acked_features(&self, features: u64) {
        AccessPlatform::check(features);
        self.set_notifies(features & FEATURE_NOTIFICATION != 0);
        self.log.switch(features & VhostUserVirtioFeatures::LOG_ALL.bits() != 0, &self.memory.memory());
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        self.access_platform.protocol_features_were_read();
        let of_versions = self.versions.as_ref().map(|versions| versions.front_end);
        let front_end = self.window.as_ref().map(|window| window.front_end());
        let choices = [
            (self.config.is_some(), VhostUserProtocolFeatures::CONFIG),
            (self.migration.is_some(), VhostUserProtocolFeatures::LOG_SHMFD | VhostUserProtocolFeatures::DEVICE_STATE),
            (
                [front_end, of_versions].iter().flatten().all(|front_end| front_end.allows_memory_slots),
                VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS,
            ),
            (front_end.is_some() || of_versions.is_some(), VhostUserProtocolFeatures::SHMEM),
            (front_end.is_some_and(|front_end| front_end.needs_barrier), VhostUserProtocolFeatures::SHARED_OBJECT),
        ];
        let always = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE;
        choices
            .into_iter()
            .filter(|(is_offered, _)| *is_offered)
            .fold(always, |features, (_, feature)| features | feature)
    }

    fn set_event_idx(&self, _: bool) {}

    /// Replaces the guest's memory. If access to part of it would raise SIGBUS, refuses and leaves the device without
    /// memory.
    ///
    /// A front end may announce what is mapped in the window as guest memory. A file that shrinks would raise SIGBUS
    /// there at any time the guest likes, so such regions are left out: a request with a buffer in the window fails
    /// with EFAULT.
    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        let announced = memory.memory();
        let kept = memory::without_window(self.window.as_deref(), &announced);
        let checked = memory::check_files(&kept).and_then(|()| self.log.carry_over(&self.memory.memory(), &kept));
        let usable = if checked.is_ok() { kept } else { GuestRam::new() };
        memory.lock().unwrap_or_else(PoisonError::into_inner).replace(usable.clone());
        self.current.replace(&self.memory, usable);
        checked
    }

    fn set_backend_req_fd(&self, backend: Backend) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = Some(backend);
    }

    /// Called by front ends that negotiated SHMEM, once the channel exists. From now on there is a window.
    fn get_shmem_config(&self) -> io::Result<VhostUserShMemConfig> {
        let channel = self.channel();
        if channel.is_none() && (self.window.is_some() || self.versions.is_some()) {
            tracing::warn!("the front end requested its regions before it provided a channel to map through");
        }
        let mut sizes = [0; 2];
        if let Some(window) = &self.window {
            sizes[usize::from(WINDOW_ID)] = window.len_bytes();
            if let Some(backend) = channel.clone().filter(|_| !window.is_open()) {
                window.connect(Box::new(Requests::new(backend)))?;
            }
        }
        if let Some(versions) = &self.versions {
            sizes[usize::from(VERSIONS_ID)] = versions.len_bytes;
            if let Some(backend) = channel {
                self.offer.regions_were_read(versions, backend)?;
            }
        }
        let regions = sizes.iter().filter(|&&len| len > 0).count() as u32;
        Ok(VhostUserShMemConfig::new(regions, &sizes))
    }

    /// Handles SET_DEVICE_STATE_FD. The crate drops the cause of an error.
    fn set_device_state_fd(
        &self,
        direction: VhostTransferStateDirection,
        phase: VhostTransferStatePhase,
        pipe: File,
    ) -> io::Result<Option<File>> {
        self.transfer(direction, phase, pipe).map(|()| None).map_err(|error| refused(&error, direction))
    }

    /// Handles CHECK_DEVICE_STATE: waits for the end of the transfer.
    fn check_device_state(&self) -> io::Result<()> {
        self.state.check().map_err(|error| {
            tracing::error!(%error, "migration failed");
            io::ErrorKind::Other.into()
        })
    }

    /// Returning other than `size` bytes tells the front end that there is no such configuration (vhost-user,
    /// "GET_CONFIG").
    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let Some(config) = &self.config else { return Vec::new() };
        let (offset, size) = (offset as usize, size as usize);
        let bytes = if self.notifications.is_some() { config.as_bytes() } else { config.config.as_bytes() };
        bytes.get(offset..offset.saturating_add(size)).unwrap_or_default().to_vec()
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.queues.len()).map(|index| 1 << index).collect()
    }

    /// Handles GET_VRING_BASE. The crate has marked the queue stopped; requests in flight are finished before the
    /// reply.
    ///
    /// The front end resumes at the returned index, so a dropped request before it would be lost (vhost-user has
    /// VHOST_USER_PROTOCOL_F_GET_VRING_BASE_INFLIGHT for that, which is not offered). A request that waits for a lock
    /// cannot be finished: an error would reach the guest's program, which nothing interrupted. Its chain stays with
    /// the device, and it is served again once the ring starts. A broken ring is not resumed, so its requests that have
    /// not begun are dropped.
    fn stop_vring(&self, queue_index: u32) -> io::Result<()> {
        if let Some(queue) = self.queues.get(queue_index as usize) {
            self.drain_queue(queue);
            if let Some(window) = &self.window {
                window.stop();
            }
            self.offer.queue_stopped(queue_index as usize, queue.in_flight.take_has_begun());
            if let Some(slots) = &queue.slots {
                slots.stop();
            }
            queue.begin_anew();
        }
        Ok(())
    }

    /// Handles RESET_DEVICE. The crate has disabled the queues; their rings start over, and requests that have not
    /// begun are dropped.
    fn reset_device(&self) {
        self.attempts.give_up();
        self.set_notifies(false);
        self.queues.iter().for_each(|queue| queue.give_up());
        self.drain();
        if let Some(window) = &self.window {
            window.reset();
        }
        self.offer.device_reset();
        self.server.end_session();
        self.queues.iter().filter_map(|queue| queue.slots.as_ref()).for_each(QueueSlots::clear);
        self.queues.iter().for_each(|queue| queue.begin_anew());
    }

    /// Returns an error only to end the queue's thread.
    fn handle_event(&self, device_event: u16, _: EventSet, vrings: &[Vring], thread_id: usize) -> io::Result<()> {
        if device_event == self.exit_number() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let is_ready = device_event == self.notification_number();
        let is_edge = is_ready || device_event == self.kick_number();
        let index = if is_edge { 0 } else { usize::from(device_event) };
        if let (Some(vring), Some(queue), Some(worker)) =
            (vrings.get(index), self.queues.get(thread_id), self.workers.get(thread_id))
        {
            if !is_edge {
                self.watch_edges(vring, thread_id);
                queue.free_dropped();
            }
            let notifications = self.notifications_of(thread_id);
            if is_ready && notifications.is_none() {
                return Ok(());
            }
            let Some(begun) = queue.begin(vring) else { return Ok(()) };
            if let Some(notifications) = notifications {
                let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                queue.notify(vring, notifications, &mut worker);
                return Ok(());
            }
            if let Some(versions) = self.versions.as_ref().filter(|_| thread_id != HIPRIO)
                && vring.unless_stopped(|| ()).is_some()
            {
                self.offer.device_runs(versions, (thread_id, vring.queue_next_avail() == 0), || self.channel());
            }
            let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(_counts) = begun {
                queue.serve_left(vring, &mut worker);
                queue.serve_arrived(vring, &mut worker);
            }
            queue.run(vring, &mut worker);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "device_test.rs"]
mod device_test;
