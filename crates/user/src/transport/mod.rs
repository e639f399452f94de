//! A vhost-user front end as the guest library's transport.
//!
//! [`VhostUser::connect`] negotiates and shares the arena. It emulates the device's registers, which this transport
//! does not have. Ring addresses are addresses of the arena. A back end that maps files gets a window
//! ([`VhostUser::window`]).
//!
//! Locks: `front_end` is held for one request and its answer, and nothing else is taken under it.
//! Source: the vhost-user specification of QEMU's documentation; virtio 1.3 §2.

mod connection;
mod negotiate;
mod wake;

use std::{
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use parking_lot::Mutex;
use thiserror::Error;
use transom_guest::{
    dax::WindowMemory as _,
    transport::{QueueAddresses, ShmRegion, Transport, TransportError},
};
use transom_wire::{
    config::{Config, DEVICE_ID, FEATURE_NOTIFICATION, NotifyingConfig},
    window::{VERSIONS_ID, WINDOW_ID},
};
use vhost::{
    VhostBackend as _, VringConfigData,
    vhost_user::{
        self, Frontend, VhostUserFrontend as _,
        message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures},
    },
};
use zerocopy::IntoBytes as _;

use crate::{
    arena::Arena,
    daemon::Daemon,
    window::{Area, Files, Served, VersionTable, Window, WindowUse},
};
use connection::OwnedConnection;
use wake::Wake;

/// Maximum length of a queue: virtiofsd's limit. A request of 1 MiB in pages uses 256 descriptors and a few more.
const QUEUE_LEN_MAX: u16 = 1024;
/// Feature bits that concern front end and back end, but not the driver.
const OWN_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | VhostUserVirtioFeatures::LOG_ALL.bits();

/// A vhost-user-fs back end as a device.
pub struct VhostUser {
    front_end: Mutex<Frontend>,
    arena: Arc<Arena>,
    /// Virtio feature bits offered by the back end.
    offered: u64,
    protocol_features: VhostUserProtocolFeatures,
    config: NotifyingConfig,
    status: AtomicU8,
    queues: Vec<Queue>,
    /// Dropped before the connection, so that no mapping is used afterwards.
    window: Option<Served>,
    connection: OwnedConnection,
    /// Dropped after the connection, whose end makes the daemon exit.
    daemon: Option<Daemon>,
}

struct Queue {
    kick: Wake,
    call: Arc<Wake>,
    is_started: AtomicBool,
}

/// An error from connecting to a back end.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A request failed: the other side may not speak vhost-user.
    #[error("vhost-user request {request} failed")]
    Request {
        /// The request's name in the specification.
        request: &'static str,
        /// The cause.
        source: vhost::Error,
    },
    /// The other side accepted the connection, but did not answer in time.
    #[error("vhost-user request {request} was not answered within {seconds} s")]
    Silent {
        /// The request's name in the specification.
        request: &'static str,
        /// The time limit.
        seconds: u64,
    },
    /// The other side closed the connection.
    #[error("the other side closed the connection during vhost-user request {request}")]
    HungUp {
        /// The request's name in the specification.
        request: &'static str,
    },
    /// The other side lacks something that is required.
    #[error("the other side lacks {0}")]
    Lacks(&'static str),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl VhostUser {
    /// Negotiates over `stream` and shares `arena` with the back end.
    ///
    /// For a back end without configuration space, one is made from its number of queues and `tag`. Blocks until the
    /// back end has answered, with a timeout.
    pub fn connect(stream: UnixStream, arena: Arc<Arena>, tag: &[u8]) -> Result<Self, ConnectError> {
        Self::connect_for(stream, arena, tag, WindowUse::Memory)
    }

    /// Connects as [`Self::connect`] does, and uses the window of a back end that maps files as `window_use` says.
    pub fn connect_for(
        stream: UnixStream,
        arena: Arc<Arena>,
        tag: &[u8],
        window_use: WindowUse,
    ) -> Result<Self, ConnectError> {
        let connection = OwnedConnection::new(stream.try_clone()?)?;
        let negotiated = negotiate::negotiate(&connection, stream, &arena, tag, window_use)?;
        let queues = (0..negotiated.queue_count)
            .map(|_| {
                let call = Arc::new(Wake::new()?);
                connection.add_wait(Arc::clone(&call));
                Ok(Queue { kick: Wake::new()?, call, is_started: AtomicBool::new(false) })
            })
            .collect::<std::io::Result<_>>()?;
        if let Some(window) = negotiated.window.as_ref().and_then(Served::window) {
            connection.add_window(window);
        }
        Ok(Self {
            front_end: Mutex::new(negotiated.front_end),
            arena,
            offered: negotiated.offered,
            protocol_features: negotiated.protocol_features,
            config: negotiated.config,
            status: AtomicU8::new(0),
            queues,
            window: negotiated.window,
            connection,
            daemon: None,
        })
    }

    /// Keeps `daemon` until the connection to it has ended.
    #[must_use]
    pub fn with_daemon(self, daemon: Daemon) -> Self {
        Self { daemon: Some(daemon), ..self }
    }

    /// Returns the process id of the daemon that was started for this connection.
    pub fn daemon_id(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::id)
    }

    /// Returns the window into which the back end maps files, if there is one.
    pub fn window(&self) -> Option<&Arc<Area>> {
        match self.window.as_ref()?.window()? {
            Window::Memory(area) => Some(area),
            Window::Files(_) => None,
        }
    }

    /// Returns the files that the back end maps, if the window is used for [`WindowUse::Files`].
    pub fn files(&self) -> Option<&Arc<Files>> {
        match self.window.as_ref()?.window()? {
            Window::Files(files) => Some(files),
            Window::Memory(_) => None,
        }
    }

    /// Returns the version table of the back end's coherence group, if it is in one.
    pub fn versions(&self) -> Option<&VersionTable> {
        self.window.as_ref()?.versions()
    }

    /// Returns whether the back end closed the connection.
    pub fn is_gone(&self) -> bool {
        self.connection.is_gone()
    }

    /// Returns a descriptor that is readable once the back end has signalled `queue` or is gone, for use in a poll of
    /// several.
    pub fn call_fd(&self, queue: u16) -> Option<BorrowedFd<'_>> {
        self.queues.get(usize::from(queue)).map(|queue| queue.call.as_fd())
    }

    /// Closes the connection for both sides and wakes every waiter.
    pub fn hang_up(&self) {
        self.connection.hang_up();
    }

    /// Sends a request and waits for its answer.
    fn ask<T>(&self, request: impl FnOnce(&mut Frontend) -> vhost::Result<T>) -> Result<T, TransportError> {
        if self.connection.is_gone() {
            return Err(TransportError::Gone);
        }
        let mut front_end = self.front_end.lock();
        self.connection.in_time(|| request(&mut front_end)).map_err(|error| {
            tracing::debug!(%error, "the back end rejected a request");
            if self.connection.is_gone() || is_hang_up(&error) {
                TransportError::Gone
            } else {
                TransportError::Broken("the back end rejected a vhost-user request")
            }
        })
    }

    fn stop(&self) -> Result<(), TransportError> {
        self.status.store(0, Ordering::Release);
        for (index, queue) in self.queues.iter().enumerate() {
            if !queue.is_started.swap(false, Ordering::AcqRel) {
                continue;
            }
            let stopped = self.ask(|front_end| {
                front_end.set_vring_enable(index, false)?;
                front_end.get_vring_base(index).map(drop)
            });
            match stopped {
                Err(TransportError::Gone) => return Ok(()),
                other => other?,
            }
        }
        if self.protocol_features.contains(VhostUserProtocolFeatures::RESET_DEVICE) {
            match self.ask(|front_end| front_end.reset_device()) {
                Err(TransportError::Gone) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn queue(&self, queue: u16) -> Result<&Queue, TransportError> {
        self.queues.get(usize::from(queue)).ok_or(TransportError::Lacks("a queue of this number"))
    }

    /// Returns the address of this process by which the daemon finds a ring (vhost-user, "Vring address description").
    fn user_address(&self, address: u64) -> Result<u64, TransportError> {
        self.arena.user_address(address).ok_or(TransportError::Lacks("memory for a ring outside the arena"))
    }
}

impl Transport for VhostUser {
    fn device_type(&self) -> u32 {
        DEVICE_ID
    }

    fn status(&self) -> Result<u8, TransportError> {
        if self.connection.is_gone() { Err(TransportError::Gone) } else { Ok(self.status.load(Ordering::Acquire)) }
    }

    fn add_status(&self, bits: u8) -> Result<(), TransportError> {
        self.status.fetch_or(bits, Ordering::AcqRel);
        Ok(())
    }

    /// Stops each queue, which waits for the requests in flight, unless the back end is gone. Removes every mapping.
    fn reset(&self) -> Result<(), TransportError> {
        let result = self.stop();
        if let Some(window) = self.window.as_ref().and_then(Served::window) {
            window.clear();
        }
        result
    }

    fn device_features(&self) -> Result<u64, TransportError> {
        Ok(self.offered & !OWN_FEATURES)
    }

    fn set_driver_features(&self, features: u64) -> Result<(), TransportError> {
        let all = features & self.offered & !OWN_FEATURES | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        self.ask(|front_end| front_end.set_features(all))
    }

    fn read_config(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), TransportError> {
        let has_notifications = self.offered & FEATURE_NOTIFICATION != 0;
        let len = if has_notifications { size_of::<NotifyingConfig>() } else { size_of::<Config>() };
        let config = &self.config.as_bytes()[..len];
        let wanted = offset_bytes.checked_add(bytes.len()).and_then(|end| config.get(offset_bytes..end));
        bytes.copy_from_slice(wanted.ok_or(TransportError::Lacks("as much configuration space"))?);
        Ok(())
    }

    fn queue_len_max(&self, queue: u16) -> Result<u16, TransportError> {
        Ok(if usize::from(queue) < self.queues.len() { QUEUE_LEN_MAX } else { 0 })
    }

    fn start_queue(&self, queue: u16, len: u16, addresses: QueueAddresses) -> Result<(), TransportError> {
        let Queue { kick, call, is_started } = self.queue(queue)?;
        let rings = VringConfigData {
            queue_max_size: QUEUE_LEN_MAX,
            queue_size: len,
            flags: 0,
            desc_table_addr: self.user_address(addresses.descriptors)?,
            used_ring_addr: self.user_address(addresses.used)?,
            avail_ring_addr: self.user_address(addresses.available)?,
            log_addr: None,
        };
        let no_descriptor = |_| TransportError::Lacks("a descriptor for a queue: this process has too many open");
        let (kick, call) = (kick.share().map_err(no_descriptor)?, call.share().map_err(no_descriptor)?);
        let index = usize::from(queue);
        self.ask(|front_end| {
            front_end.set_vring_num(index, len)?;
            front_end.set_vring_addr(index, &rings)?;
            front_end.set_vring_base(index, 0)?;
            front_end.set_vring_call(index, &call)?;
            front_end.set_vring_kick(index, &kick)?;
            front_end.set_vring_enable(index, true)
        })?;
        is_started.store(true, Ordering::Release);
        Ok(())
    }

    fn notify(&self, queue: u16) {
        if let Some(queue) = self.queues.get(usize::from(queue)) {
            queue.kick.wake();
        }
    }

    fn wait(&self, queue: u16, _: u64, deadline_ns: Option<u64>) -> Result<(), TransportError> {
        let call = &self.queue(queue)?.call;
        if !self.connection.is_gone() {
            call.wait(deadline_ns);
        }
        if self.connection.is_gone() {
            // The end is signalled once; pass it on, because another thread may wait for the same queue.
            call.wake();
            return Err(TransportError::Gone);
        }
        Ok(())
    }

    /// The address is an address of this process.
    fn shm_region(&self, id: u8) -> Result<Option<ShmRegion>, TransportError> {
        Ok(match id {
            WINDOW_ID => self.window().map(|area| (area.start().addr().get() as u64, area.len_bytes())),
            VERSIONS_ID => self.versions().map(VersionTable::span),
            _ => None,
        }
        .map(|(address, len_bytes)| ShmRegion { address, len_bytes }))
    }

    fn is_gone(&self) -> bool {
        self.connection.is_gone()
    }
}

/// Returns whether the error means that the other side closed the socket.
fn is_hang_up(error: &vhost::Error) -> bool {
    use vhost_user::Error::{Disconnected, PartialMessage, SocketBroken, SocketError};
    let vhost::Error::VhostUserProtocol(error) = error else { return false };
    matches!(error, Disconnected | PartialMessage | SocketBroken(_) | SocketError(_))
}
