//! The negotiation of a front end with its back end, before the first queue starts.

use std::os::unix::net::UnixStream;

use transom_guest::device::feature::VERSION_1;
use transom_wire::{
    config::{Config, FEATURE_NOTIFICATION, NotifyingConfig, QUEUE_FIRST_REQUEST, TAG_LEN},
    window::{VERSIONS_ID, WINDOW_ID},
};
use vhost::{
    VhostBackend as _, VhostUserMemoryRegionInfo,
    vhost_user::{
        Frontend, VhostUserFrontend as _,
        message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures},
    },
};
use zerocopy::{FromBytes as _, FromZeros as _};

use super::{
    ConnectError,
    connection::{ANSWER_MAX, Connection},
    is_hang_up,
};
use crate::{
    arena::Arena,
    window::{RegionLens, Served, WindowUse},
};

/// Number of queues of a back end without MQ: the high-priority queue and one request queue.
const QUEUES_WITHOUT_MQ: u64 = 2;
/// Maximum number of queues used; on large machines, this many threads can send requests without sharing a queue.
const QUEUES_MAX: u64 = 65;

/// The features that a window requires. A mapping is complete when it is acknowledged, so no other feature is needed
/// for that.
const WINDOW_FEATURES: VhostUserProtocolFeatures = VhostUserProtocolFeatures::BACKEND_REQ
    .union(VhostUserProtocolFeatures::BACKEND_SEND_FD)
    .union(VhostUserProtocolFeatures::SHMEM)
    .union(VhostUserProtocolFeatures::REPLY_ACK);

/// The result of the negotiation.
pub(super) struct Negotiated {
    pub(super) front_end: Frontend,
    pub(super) offered: u64,
    pub(super) protocol_features: VhostUserProtocolFeatures,
    pub(super) queue_count: u16,
    /// Whose size of notifications is 0 for a back end that offers none.
    pub(super) config: NotifyingConfig,
    pub(super) window: Option<Served>,
}

/// Negotiates everything except the queues.
pub(super) fn negotiate(
    connection: &Connection,
    stream: UnixStream,
    arena: &Arena,
    tag: &[u8],
    window_use: WindowUse,
) -> Result<Negotiated, ConnectError> {
    let mut asking = Asking { connection, front_end: Frontend::from_stream(stream, QUEUES_WITHOUT_MQ) };
    let offered = asking.ask("GET_FEATURES", |front_end| front_end.get_features())?;
    if offered & VERSION_1 == 0 {
        return Err(ConnectError::Lacks("VIRTIO_F_VERSION_1"));
    }
    if offered & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
        return Err(ConnectError::Lacks("VHOST_USER_F_PROTOCOL_FEATURES"));
    }
    let protocol_features = asking.protocol_features()?;
    asking.ask("SET_OWNER", |front_end| front_end.set_owner())?;
    let queue_count = asking.queue_count(protocol_features)?;
    // The driver needs the size of a notification, which only the back end has.
    let has_config = protocol_features.contains(VhostUserProtocolFeatures::CONFIG);
    let offered = if has_config { offered } else { offered & !FEATURE_NOTIFICATION };
    let config = match offered & FEATURE_NOTIFICATION {
        0 => {
            let config = asking.config(protocol_features, queue_count, tag)?;
            NotifyingConfig { config, notify_buf_size: 0.into() }
        }
        _ => asking.notifying_config(queue_count)?,
    };
    let region = VhostUserMemoryRegionInfo::from_guest_region(arena.region())
        .map_err(|source| ConnectError::Request { request: "SET_MEM_TABLE", source })?;
    asking.ask("SET_MEM_TABLE", |front_end| front_end.set_mem_table(&[region]).map(drop))?;
    let window = asking.window(protocol_features, window_use)?;
    Ok(Negotiated { front_end: asking.front_end, offered, protocol_features, queue_count, config, window })
}

struct Asking<'l> {
    connection: &'l Connection,
    front_end: Frontend,
}

impl Asking<'_> {
    /// Sends a request and waits for its answer.
    fn ask<T>(
        &mut self,
        request: &'static str,
        send: impl FnOnce(&mut Frontend) -> vhost::Result<T>,
    ) -> Result<T, ConnectError> {
        self.connection.in_time(|| send(&mut self.front_end)).map_err(|source| {
            if !is_hang_up(&source) {
                ConnectError::Request { request, source }
            } else if self.connection.was_late() {
                ConnectError::Silent { request, seconds: ANSWER_MAX.as_secs() }
            } else {
                ConnectError::HungUp { request }
            }
        })
    }

    /// Selects the useful ones among the back end's protocol features.
    fn protocol_features(&mut self) -> Result<VhostUserProtocolFeatures, ConnectError> {
        let mut known = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::RESET_DEVICE;
        let offered = self.ask("GET_PROTOCOL_FEATURES", |front_end| front_end.get_protocol_features())?;
        if offered.contains(WINDOW_FEATURES) {
            known |= WINDOW_FEATURES;
        }
        let taken = offered & known;
        self.ask("SET_PROTOCOL_FEATURES", |front_end| front_end.set_protocol_features(taken))?;
        if taken.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            // With replies, a rejected request is an error instead of a queue that does nothing.
            self.front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        Ok(taken)
    }

    /// Returns the shared-memory regions for files and for versions, if the back end has any.
    fn window(
        &mut self,
        features: VhostUserProtocolFeatures,
        window_use: WindowUse,
    ) -> Result<Option<Served>, ConnectError> {
        if !features.contains(WINDOW_FEATURES) {
            return Ok(None);
        }
        Served::start(window_use, |channel| {
            self.ask("SET_BACKEND_REQ_FD", |front_end| front_end.set_backend_request_fd(channel))?;
            let config = self.ask("GET_SHMEM_CONFIG", |front_end| front_end.get_shmem_config())?;
            let len = |id| config.memory_sizes[usize::from(id)];
            Ok(RegionLens { window: len(WINDOW_ID), versions: len(VERSIONS_ID) })
        })
    }

    /// Returns the number of queues, including the high-priority one.
    fn queue_count(&mut self, features: VhostUserProtocolFeatures) -> Result<u16, ConnectError> {
        let count = if features.contains(VhostUserProtocolFeatures::MQ) {
            self.ask("GET_QUEUE_NUM", |front_end| front_end.get_queue_num())?
        } else {
            QUEUES_WITHOUT_MQ
        };
        if count < QUEUES_WITHOUT_MQ {
            return Err(ConnectError::Lacks("a request queue"));
        }
        Ok(count.min(QUEUES_MAX) as u16)
    }

    /// Returns the back end's configuration space, or one made from `tag` and the number of queues.
    fn config(
        &mut self,
        features: VhostUserProtocolFeatures,
        queue_count: u16,
        tag: &[u8],
    ) -> Result<Config, ConnectError> {
        let request_queues_max = request_queues_max(queue_count);
        if !features.contains(VhostUserProtocolFeatures::CONFIG) {
            let mut config = Config::new_zeroed();
            let len = tag.len().min(TAG_LEN);
            config.tag[..len].copy_from_slice(&tag[..len]);
            config.num_request_queues = request_queues_max.into();
            return Ok(config);
        }
        let bytes = self.config_bytes([0; size_of::<Config>()])?;
        let config =
            Config::read_from_bytes(&bytes).map_err(|_| ConnectError::Lacks("a configuration space of 40 bytes"))?;
        limited(config, request_queues_max)
    }

    /// Returns the configuration space of a back end that offers a notification queue.
    fn notifying_config(&mut self, queue_count: u16) -> Result<NotifyingConfig, ConnectError> {
        let bytes = self.config_bytes([0; size_of::<NotifyingConfig>()])?;
        let NotifyingConfig { config, notify_buf_size } = NotifyingConfig::read_from_bytes(&bytes)
            .map_err(|_| ConnectError::Lacks("a configuration space of 44 bytes, although it offers notifications"))?;
        Ok(NotifyingConfig { config: limited(config, request_queues_max(queue_count))?, notify_buf_size })
    }

    fn config_bytes<const LEN: usize>(&mut self, room: [u8; LEN]) -> Result<Vec<u8>, ConnectError> {
        let get = |front_end: &mut Frontend| front_end.get_config(0, LEN as u32, VhostUserConfigFlags::empty(), &room);
        Ok(self.ask("GET_CONFIG", get)?.1)
    }
}

/// Returns the most request queues that a back end with so many queues can have. Of a notification queue, the driver
/// decides: without it, there is one queue too many.
fn request_queues_max(queue_count: u16) -> u32 {
    u32::from(queue_count) - QUEUE_FIRST_REQUEST as u32
}

/// Returns `config` with no more than so many request queues.
fn limited(mut config: Config, request_queues_max: u32) -> Result<Config, ConnectError> {
    if config.num_request_queues == 0 {
        return Err(ConnectError::Lacks("a request queue in its configuration space"));
    }
    config.num_request_queues = config.num_request_queues.get().min(request_queues_max).into();
    Ok(config)
}
