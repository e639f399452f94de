//! Device initialization: status, features, configuration, queues (virtio 1.3 §3.1.1).

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use transom_wire::config::{
    Config, DEVICE_ID, FEATURE_NOTIFICATION, NotifyingConfig, QUEUE_FIRST_REQUEST, QUEUE_HIPRIO, QUEUE_NOTIFICATION,
};
use zerocopy::FromBytes as _;

use super::{
    DeviceError, Settings, VirtioFs,
    feature::{EVENT_IDX, INDIRECT_DESC, ORDER_PLATFORM, VERSION_1},
    notifications::{BUFFER_LEN_MAX, NotificationQueue},
    status::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FAILED, FEATURES_OK},
};
use crate::{
    channel::ChannelError,
    dma::{ACCESS_PLATFORM, DmaChoice, DmaOps},
    platform::Platform,
    queue::{Health, Queue, QueueSettings},
    ring::{Barriers, LEN_MAX, RingSettings},
    transport::{Transport, TransportError},
};

/// Preferred length of a message's data: FUSE servers and Linux default to at most 1 MiB.
const DATA_LEN_WANTED: usize = 1 << 20;

/// Head, reply head, and data in either direction, when each is contiguous.
const SEGMENTS_MIN: u16 = 4;

/// FORGETs in flight: they come in batches, and a session sends them one at a time.
const PRIORITY_IN_FLIGHT: u16 = 32;

pub(super) fn bring_up<P: Platform, T: Transport + 'static>(
    transport: Arc<T>,
    platform: Arc<P>,
    dma: &DmaChoice,
    settings: Settings,
) -> Result<VirtioFs<P, T>, DeviceError> {
    let kind = transport.device_type();
    if kind != DEVICE_ID {
        return Err(DeviceError::Type(kind));
    }
    transport.reset()?;
    let health = Health::new(Arc::clone(&platform), Arc::clone(&transport) as Arc<dyn Transport>);
    let brought = Attempt { transport: &transport, platform, health: Arc::clone(&health), dma, settings }.run();
    if brought.is_err() {
        // If queues were started, the device was reset before they were freed. Errors are ignored because nothing more
        // can be done about a device that does not answer.
        if !health.is_released() {
            let _ = transport.reset();
        }
        let _ = transport.add_status(FAILED);
    }
    brought
}

/// An initialization in progress.
struct Attempt<'a, P: Platform, T: Transport> {
    transport: &'a Arc<T>,
    platform: Arc<P>,
    health: Arc<Health<P>>,
    dma: &'a DmaChoice,
    settings: Settings,
}

impl<P: Platform, T: Transport + 'static> Attempt<'_, P, T> {
    fn run(self) -> Result<VirtioFs<P, T>, DeviceError> {
        self.transport.add_status(ACKNOWLEDGE)?;
        self.transport.add_status(DRIVER)?;
        let features = self.negotiate()?;
        let ops = self.dma.choose(features)?;
        let (tag, request_queues) = self.read_config()?;
        let limits = self.limits(&*ops, features)?;

        // From here on the device is reset before a queue is freed: by `VirtioFs`, or by `Started`, which is dropped
        // before the notification queue.
        let mut notifications = None;
        let mut started = Started { queues: Vec::new(), health: &self.health };
        let first_request = first_request(features);
        for index in core::iter::once(QUEUE_HIPRIO as u16).chain(first_request..first_request + request_queues) {
            match self.start_queue(index, &limits, features, &ops)? {
                Some(queue) => started.queues.push(queue),
                None => break,
            }
        }
        if features & FEATURE_NOTIFICATION != 0 && !started.queues.is_empty() {
            notifications = Some(self.start_notifications(features, &ops)?);
        }
        self.transport.add_status(DRIVER_OK)?;
        if started.queues.len() <= 1 {
            return Err(TransportError::Lacks("a request queue").into());
        }
        let mut queues = core::mem::take(&mut started.queues);
        let requests = queues.split_off(1).into_boxed_slice();
        let priority = queues.swap_remove(QUEUE_HIPRIO);
        drop(started);
        if let Some(notifications) = &notifications {
            notifications.provide();
        }
        Ok(VirtioFs {
            transport: Arc::clone(self.transport),
            ops,
            health: self.health,
            features,
            tag,
            data_len_max: limits.data_len_max,
            priority,
            notifications,
            first_request,
            requests,
        })
    }

    /// Selects from the offered features. VIRTIO_FS_F_NOTIFICATION renumbers the queues.
    fn negotiate(&self) -> Result<u64, DeviceError> {
        let offered = self.transport.device_features()?;
        if offered & VERSION_1 == 0 {
            return Err(TransportError::Lacks("VIRTIO_F_VERSION_1").into());
        }
        let notification = if self.settings.notification_buffers > 0 { FEATURE_NOTIFICATION } else { 0 };
        let known = VERSION_1 | INDIRECT_DESC | EVENT_IDX | ACCESS_PLATFORM | ORDER_PLATFORM | notification;
        let features = offered & known;
        // Comes first: a device that bypasses the platform is not told to go on.
        self.dma.choose(features)?;
        self.transport.set_driver_features(features)?;
        self.transport.add_status(FEATURES_OK)?;
        if self.transport.status()? & FEATURES_OK == 0 {
            return Err(TransportError::Lacks("the features that it offered").into());
        }
        Ok(features)
    }

    /// Reads the tag and returns it with the number of request queues to use.
    fn read_config(&self) -> Result<(Box<[u8]>, u16), DeviceError> {
        let mut bytes = [0; size_of::<Config>()];
        self.transport.read_config(0, &mut bytes)?;
        let config = Config::read_from_bytes(&bytes).map_err(|_| DeviceError::Tag)?;
        let tag = config.tag.split(|&byte| byte == 0).next().unwrap_or_default();
        if tag.is_empty() || tag.contains(&b'\n') {
            return Err(DeviceError::Tag);
        }
        let offered = config.num_request_queues.get();
        if offered == 0 {
            return Err(TransportError::Broken("it has no request queues").into());
        }
        let wanted = self.settings.request_queues_max.unwrap_or_else(|| self.platform.processors());
        let queues = offered.min(wanted.max(1).into());
        Ok((tag.into(), queues as u16))
    }

    /// Returns the limits of a message, given the shortest request queue.
    fn limits(&self, ops: &dyn DmaOps, features: u64) -> Result<Limits, DeviceError> {
        let len = self.queue_len(first_request(features))?;
        if len < SEGMENTS_MIN {
            return Err(TransportError::Lacks("a request queue with room for a message").into());
        }
        let piece = ops.mapping_len_max().max(1);
        let Some(boundary) = ops.boundary() else {
            return Ok(Limits { segments_max: SEGMENTS_MIN, data_len_max: DATA_LEN_WANTED.min(piece) });
        };
        // Without indirect tables each message takes descriptors of the ring: a quarter of them, so that four messages
        // can be in flight.
        let most = if features & INDIRECT_DESC != 0 { len } else { (len / 4).max(SEGMENTS_MIN) };
        let piece = piece.min(boundary).max(1);
        // Two heads, and data that begins at any offset in a page.
        let wanted = DATA_LEN_WANTED.div_ceil(piece) + 3;
        let segments_max = wanted.clamp(SEGMENTS_MIN.into(), most.into());
        let data_len_max = DATA_LEN_WANTED.min((segments_max - 3).saturating_mul(piece));
        Ok(Limits { segments_max: segments_max as u16, data_len_max })
    }

    /// Returns the longest ring that both sides support, 0 if there is no such queue.
    fn queue_len(&self, index: u16) -> Result<u16, DeviceError> {
        let most = self.transport.queue_len_max(index)?.min(self.settings.queue_len_max).min(LEN_MAX);
        Ok(most.checked_ilog2().map_or(0, |log2| 1 << log2))
    }

    /// Starts the notification queue, without buffers.
    fn start_notifications(
        &self,
        features: u64,
        ops: &Arc<dyn DmaOps>,
    ) -> Result<NotificationQueue<P, T>, DeviceError> {
        let mut bytes = [0; size_of::<NotifyingConfig>()];
        self.transport.read_config(0, &mut bytes)?;
        let config = NotifyingConfig::read_from_bytes(&bytes).map_err(|_| DeviceError::Tag)?;
        let buffer_len = config.notify_buf_size.get() as usize;
        if buffer_len > BUFFER_LEN_MAX {
            return Err(TransportError::Broken("its notifications are longer than 64 KiB").into());
        }
        let index = QUEUE_NOTIFICATION as u16;
        let len = self.queue_len(index)?;
        if len == 0 {
            return Err(TransportError::Lacks("the notification queue that it offered").into());
        }
        let ring = RingSettings {
            len,
            chains_max: len.min(self.settings.notification_buffers),
            segments_max: 1,
            is_indirect: false,
            has_event_index: features & EVENT_IDX != 0,
            barriers: barriers(features),
        };
        let (platform, transport) = (Arc::clone(&self.platform), Arc::clone(self.transport));
        let queue = NotificationQueue::new(ring, buffer_len, (platform, transport, Arc::clone(&self.health)), ops)?;
        if let Err(error) = self.transport.start_queue(index, len, queue.addresses()) {
            // It may have started nevertheless.
            self.health.fail(ChannelError::Gone);
            return Err(error.into());
        }
        Ok(queue)
    }

    /// Starts a queue. Returns `None` if the device has no such queue.
    fn start_queue(
        &self,
        index: u16,
        limits: &Limits,
        features: u64,
        ops: &Arc<dyn DmaOps>,
    ) -> Result<Option<Arc<Queue<P, T>>>, DeviceError> {
        let len = self.queue_len(index)?;
        let is_indirect = features & INDIRECT_DESC != 0;
        let is_priority = usize::from(index) == QUEUE_HIPRIO;
        let segments_max = if is_priority { SEGMENTS_MIN } else { limits.segments_max };
        if len < segments_max {
            return Ok(None);
        }
        let in_flight_max = if is_priority { PRIORITY_IN_FLIGHT } else { self.settings.in_flight_max.max(1) };
        let chains_max = in_flight_max.min(if is_indirect { len } else { len / segments_max });
        let has_event_index = features & EVENT_IDX != 0;
        let barriers = barriers(features);
        let settings = QueueSettings {
            index,
            ring: RingSettings { len, chains_max, segments_max, is_indirect, has_event_index, barriers },
            data_len_max: limits.data_len_max,
            poll_max_ns: self.settings.poll_max_ns,
            pollers_max: self.settings.pollers_max,
        };
        let (transport, health) = (Arc::clone(self.transport), Arc::clone(&self.health));
        let queue = Queue::new(settings, Arc::clone(&self.platform), transport, Arc::clone(ops), health)?;
        if let Err(error) = self.transport.start_queue(index, len, queue.addresses()) {
            // It may have started nevertheless.
            self.health.fail(ChannelError::Gone);
            return Err(error.into());
        }
        Ok(Some(queue))
    }
}

/// Returns the device's number of the first request queue.
fn first_request(features: u64) -> u16 {
    let notification = u16::from(features & FEATURE_NOTIFICATION != 0);
    QUEUE_FIRST_REQUEST as u16 + notification
}

fn barriers(features: u64) -> Barriers {
    if features & ORDER_PLATFORM != 0 { Barriers::Platform } else { Barriers::Processors }
}

struct Limits {
    segments_max: u16,
    data_len_max: usize,
}

/// Queues that the device knows of; the device is reset before they are freed.
struct Started<'a, P: Platform, T: Transport + 'static> {
    queues: Vec<Arc<Queue<P, T>>>,
    health: &'a Health<P>,
}

impl<P: Platform, T: Transport + 'static> Drop for Started<'_, P, T> {
    fn drop(&mut self) {
        if !self.queues.is_empty() {
            self.health.fail(ChannelError::Gone);
        }
    }
}
