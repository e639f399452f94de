//! Initializes the device, and returns its queues as rings, each for one worker.
//!
//! Source: virtio 1.3 §3.1.1, §5.11.

use std::sync::Arc;

use transom_guest::{
    device::{
        DeviceError,
        feature::{EVENT_IDX, INDIRECT_DESC, VERSION_1},
        status::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK},
    },
    dma::DmaOps,
    ring::{Barriers, LEN_MAX, Ring, RingSettings},
    transport::{Transport as _, TransportError},
};
use transom_wire::config::{Config, QUEUE_FIRST_REQUEST, QUEUE_HIPRIO};
use zerocopy::FromBytes as _;

use transom_user::transport::VhostUser;

/// One segment for a request, one for its reply.
const SEGMENTS_MAX: u16 = 2;
/// The most messages in flight on the high-priority queue.
pub(super) const HIPRIO_CHAINS_MAX: u16 = 64;

/// The queues of an initialized device. The device must be reset before they are dropped.
pub(super) struct Queues {
    pub(super) hiprio: Ring,
    /// The request queues, which have the numbers from 1 on.
    pub(super) requests: Vec<Ring>,
    /// Requests that can be in flight on each request queue.
    pub(super) chains_max: u16,
}

/// Initializes the device with at most `requests_max` request queues and `chains_max` requests in flight on each.
///
/// # Errors
/// The device lacks something, or is gone. It may still use the queues' memory: the connection must be closed before
/// `ops` reuses it.
pub(super) fn start(
    device: &VhostUser,
    ops: &Arc<dyn DmaOps>,
    requests_max: u16,
    chains_max: u16,
) -> Result<Queues, DeviceError> {
    device.reset()?;
    device.add_status(ACKNOWLEDGE)?;
    device.add_status(DRIVER)?;
    let offered = device.device_features()?;
    if offered & VERSION_1 == 0 {
        return Err(TransportError::Lacks("VIRTIO_F_VERSION_1").into());
    }
    let features = offered & (VERSION_1 | INDIRECT_DESC | EVENT_IDX);
    device.set_driver_features(features)?;
    device.add_status(FEATURES_OK)?;

    let count = request_queues(device)?.clamp(1, requests_max.max(1));
    let start = |index: u16, chains_max: u16| start_queue(device, ops, features, index, chains_max);
    let (hiprio, _) = start(QUEUE_HIPRIO as u16, HIPRIO_CHAINS_MAX)?;
    let first = QUEUE_FIRST_REQUEST as u16;
    let started: Result<Vec<_>, _> = (first..first + count).map(|index| start(index, chains_max)).collect();
    device.add_status(DRIVER_OK)?;
    let (requests, chains): (Vec<_>, Vec<_>) = started?.into_iter().unzip();
    let chains_max = chains.into_iter().min().unwrap_or(1);
    Ok(Queues { hiprio, requests, chains_max })
}

fn request_queues(device: &VhostUser) -> Result<u16, DeviceError> {
    let mut bytes = [0; size_of::<Config>()];
    device.read_config(0, &mut bytes)?;
    let config = Config::read_from_bytes(&bytes).map_err(|_| TransportError::Broken("its configuration is short"))?;
    Ok(config.num_request_queues.get().min(u16::MAX.into()) as u16)
}

/// Starts queue `index`, and returns its ring and how many chains fit it.
fn start_queue(
    device: &VhostUser,
    ops: &Arc<dyn DmaOps>,
    features: u64,
    index: u16,
    chains_max: u16,
) -> Result<(Ring, u16), DeviceError> {
    let len = device.queue_len_max(index)?.min(LEN_MAX);
    let len = len.checked_ilog2().map_or(0, |log2| 1 << log2);
    if len < SEGMENTS_MAX {
        return Err(TransportError::Lacks("a queue with room for a request").into());
    }
    let is_indirect = features & INDIRECT_DESC != 0;
    let chains_max = chains_max.min(if is_indirect { len } else { len / SEGMENTS_MAX });
    let has_event_index = features & EVENT_IDX != 0;
    let settings = RingSettings {
        len,
        chains_max,
        segments_max: SEGMENTS_MAX,
        is_indirect,
        has_event_index,
        barriers: Barriers::Processors,
    };
    let ring = Ring::new(ops, settings)?;
    device.start_queue(index, len, ring.addresses())?;
    Ok((ring, chains_max))
}
