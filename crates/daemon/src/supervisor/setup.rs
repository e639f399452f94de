//! What a front end has set up, so that another daemon can be set up in the same way.
//!
//! Recorded from the messages that pass, in terms of the vhost-user specification. Nothing recorded is mapped or read;
//! what a front end sends without sense is passed on, and refused by the daemon.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use super::{message::Message, request::*};

/// VHOST_USER_F_PROTOCOL_FEATURES.
const F_PROTOCOL_FEATURES: u64 = 1 << 30;
/// VHOST_F_LOG_ALL.
const F_LOG_ALL: u64 = 1 << 26;
/// In the payload of SET_VRING_KICK and its like: there is no descriptor.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// The rings that a front end can set up. The daemon has fewer.
const RINGS_MAX: u32 = 256;
/// The most regions of memory. The daemon accepts no more.
const REGIONS_MAX: usize = 509;
/// Length of a region in a message: guest address, size, front end's address, offset.
const REGION_LEN: usize = 32;
/// Where the regions of SET_MEM_TABLE and the region of ADD_MEM_REG begin.
const REGIONS_AT: usize = 8;

/// What a front end has set up.
#[derive(Debug, Default)]
pub(super) struct Setup {
    is_owned: bool,
    features: Option<u64>,
    protocol_features: Option<u64>,
    memory: Vec<Region>,
    /// The channel for requests of the daemon.
    requests: Option<Arc<OwnedFd>>,
    rings: BTreeMap<u32, Ring>,
    /// The front end asks for a transfer of the state, and has not asked for its outcome.
    is_transferring: bool,
    /// A request whose effect is not recorded.
    unrecorded: Option<u32>,
    /// Number of requests that may have changed something.
    changes: u64,
}

#[derive(Debug)]
struct Region {
    bytes: [u8; REGION_LEN],
    file: Arc<OwnedFd>,
}

/// One ring. Payloads are as the front end sent them.
#[derive(Debug, Default)]
struct Ring {
    size: Option<Vec<u8>>,
    addresses: Option<Vec<u8>>,
    base: Option<u32>,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    is_enabled: Option<bool>,
}

impl Setup {
    /// Records a request of the front end.
    pub(super) fn observe(&mut self, message: &Message) {
        let changes = self.changes;
        self.record(message);
        let only_asks = matches!(
            message.number(),
            GET_FEATURES | GET_PROTOCOL_FEATURES | GET_QUEUE_NUM | GET_CONFIG | GET_MAX_MEM_SLOTS | GET_SHMEM_CONFIG
        );
        self.changes = changes + u64::from(!only_asks);
    }

    /// Returns a number that differs once the front end has changed something.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn record(&mut self, message: &Message) {
        match message.number() {
            SET_OWNER => self.is_owned = true,
            RESET_OWNER => *self = Self { memory: std::mem::take(&mut self.memory), ..Self::default() },
            SET_FEATURES => self.features = message.u64_at(0),
            SET_PROTOCOL_FEATURES => self.protocol_features = message.u64_at(0),
            SET_MEM_TABLE => self.memory = regions(message),
            ADD_MEM_REG => self.add_region(message),
            REM_MEM_REG => self.remove_region(message),
            SET_BACKEND_REQ_FD => self.requests = message.descriptors.first().cloned(),
            RESET_DEVICE => {
                self.features = None;
                self.rings.clear();
            }
            SET_DEVICE_STATE_FD => self.is_transferring = true,
            CHECK_DEVICE_STATE => self.is_transferring = false,
            SET_VRING_NUM | SET_VRING_ADDR | SET_VRING_BASE | GET_VRING_BASE | SET_VRING_KICK | SET_VRING_CALL
            | SET_VRING_ERR | SET_VRING_ENABLE => self.observe_ring(message),
            // The log is of no use without LOG_ALL, with which nothing is upgraded.
            SET_LOG_BASE | SET_LOG_FD => {}
            GET_FEATURES
            | GET_PROTOCOL_FEATURES
            | GET_QUEUE_NUM
            | GET_CONFIG
            | GET_MAX_MEM_SLOTS
            | GET_SHMEM_CONFIG => {}
            number => self.unrecorded = Some(number),
        }
    }

    /// Records that ring `index` has stopped at `base`: the daemon has closed its kick and its call.
    pub(super) fn observe_base(&mut self, index: u32, base: u32) {
        if let Some(ring) = self.rings.get_mut(&index) {
            (ring.kick, ring.call, ring.base) = (None, None, Some(base));
        }
    }

    fn observe_ring(&mut self, message: &Message) {
        // The number of the ring, which SET_VRING_KICK and its like have in the lowest byte.
        let Some(first) = message.u32_at(0) else { return };
        let index = match message.number() {
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => first & 0xff,
            _ => first,
        };
        if index >= RINGS_MAX {
            return;
        }
        let ring = self.rings.entry(index).or_default();
        let payload = || Some(message.payload().to_vec());
        let has_none = message.u64_at(0).is_none_or(|number| number & NO_DESCRIPTOR != 0);
        let descriptor = || message.descriptors.first().filter(|_| !has_none).cloned();
        match message.number() {
            SET_VRING_NUM => ring.size = payload(),
            SET_VRING_ADDR => ring.addresses = payload(),
            SET_VRING_BASE => ring.base = message.u32_at(4),
            SET_VRING_KICK => ring.kick = descriptor(),
            SET_VRING_CALL => ring.call = descriptor(),
            SET_VRING_ERR => ring.error = descriptor(),
            SET_VRING_ENABLE => ring.is_enabled = message.u32_at(4).map(|enabled| enabled == 1),
            _ => {}
        }
    }

    fn add_region(&mut self, message: &Message) {
        let bytes = message.payload().get(REGIONS_AT..).and_then(|rest| rest.first_chunk());
        if let (Some(bytes), Some(file)) = (bytes, message.descriptors.first())
            && self.memory.len() < REGIONS_MAX
        {
            self.memory.push(Region { bytes: *bytes, file: file.clone() });
        }
    }

    /// Removes a region, which its guest address and its size name.
    fn remove_region(&mut self, message: &Message) {
        if let Some(named) = message.payload().get(REGIONS_AT..).and_then(|rest| rest.first_chunk::<16>()) {
            self.memory.retain(|region| !region.bytes.starts_with(named));
        }
    }

    /// Returns why nothing can be upgraded now, if that is so.
    pub(super) fn obstacle(&self) -> Option<String> {
        if self.features.is_some_and(|features| features & F_LOG_ALL != 0) || self.is_transferring {
            return Some(
                "the guest is being migrated: upgrade when it has arrived, or the migration was cancelled".into(),
            );
        }
        self.unrecorded.map(|number| format!("the front end has sent request {number}, which an upgrade cannot repeat"))
    }

    /// Returns the last request that is not known here.
    pub(super) fn unrecorded(&self) -> Option<u32> {
        self.unrecorded
    }

    /// Returns the features in use: of the device, and of the protocol.
    pub(super) fn features(&self) -> (u64, u64) {
        (self.features.unwrap_or(0), self.protocol_features.unwrap_or(0))
    }

    /// Returns the messages that set everything up except rings. The daemon has been asked for its features.
    pub(super) fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut push = |number, payload: &[u8], descriptors| {
            messages.push(Message::request(number, payload, descriptors));
        };
        if let Some(features) = self.protocol_features {
            push(SET_PROTOCOL_FEATURES, &features.to_le_bytes(), vec![]);
        }
        if self.is_owned {
            push(SET_OWNER, &[], vec![]);
        }
        if let Some(features) = self.features {
            push(SET_FEATURES, &features.to_le_bytes(), vec![]);
        }
        if let Some(requests) = &self.requests {
            push(SET_BACKEND_REQ_FD, &[], vec![requests.clone()]);
        }
        // Both kinds of message carry 8 regions at most.
        if self.memory.len() <= 8 {
            let mut payload = u32s(self.memory.len() as u32, 0);
            self.memory.iter().for_each(|region| payload.extend_from_slice(&region.bytes));
            if !self.memory.is_empty() {
                push(SET_MEM_TABLE, &payload, self.memory.iter().map(|region| region.file.clone()).collect());
            }
        } else {
            for region in &self.memory {
                push(ADD_MEM_REG, &[&[0; REGIONS_AT], &region.bytes[..]].concat(), vec![region.file.clone()]);
            }
        }
        messages
    }

    /// Returns the rings that run, or would if they had a kick.
    pub(super) fn running(&self) -> Vec<u32> {
        self.rings.iter().filter(|(_, ring)| ring.kick.is_some()).map(|(&index, _)| index).collect()
    }

    /// Returns the messages that set the rings up. Nothing is served before [`Setup::serve_messages`]: rings that have
    /// to be enabled are started here, the others there. `bases` has where those stand that ran.
    pub(super) fn ring_messages(&self, bases: &BTreeMap<u32, u32>) -> Vec<Message> {
        let mut messages = Vec::new();
        for (&index, ring) in &self.rings {
            let mut push = |number, payload: &[u8]| messages.push(Message::request(number, payload, vec![]));
            if let Some(size) = &ring.size {
                push(SET_VRING_NUM, size);
            }
            if let Some(base) = bases.get(&index).copied().or(ring.base) {
                push(SET_VRING_BASE, &u32s(index, base));
            }
            if let Some(addresses) = &ring.addresses {
                push(SET_VRING_ADDR, addresses);
            }
            if let Some(error) = &ring.error {
                messages.push(of_ring(SET_VRING_ERR, index, error));
            }
        }
        if self.enables_rings() {
            messages.extend(self.rings.iter().flat_map(|(&index, ring)| ring.start_messages(index)));
        }
        messages
    }

    /// Returns the messages after which rings that were set up are served.
    pub(super) fn serve_messages(&self) -> Vec<Message> {
        let rings = self.rings.iter();
        if self.enables_rings() {
            rings.filter_map(|(&index, ring)| ring.enable_message(index)).collect()
        } else {
            rings.flat_map(|(&index, ring)| ring.start_messages(index)).collect()
        }
    }

    /// Returns the messages that start rings again which were stopped at `bases`.
    pub(super) fn restart_messages(&self, bases: &BTreeMap<u32, u32>) -> Vec<Message> {
        let mut messages = Vec::new();
        for (&index, &base) in bases {
            messages.push(Message::request(SET_VRING_BASE, &u32s(index, base), vec![]));
            let Some(ring) = self.rings.get(&index) else { continue };
            messages.extend(ring.start_messages(index));
            messages.extend(ring.enable_message(index).filter(|_| self.enables_rings()));
        }
        messages
    }

    /// Returns whether a ring is served only once it is enabled (vhost-user, "Ring states").
    fn enables_rings(&self) -> bool {
        self.features().0 & F_PROTOCOL_FEATURES != 0
    }

    /// Returns the kicks of the rings that run.
    pub(super) fn kicks(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.rings.values().filter_map(|ring| ring.kick.as_ref())
    }
}

impl Ring {
    /// Returns the messages that start the ring, if it ran.
    fn start_messages(&self, index: u32) -> Vec<Message> {
        let call = self.call.as_ref().map(|call| of_ring(SET_VRING_CALL, index, call));
        let kick = self.kick.as_ref().map(|kick| of_ring(SET_VRING_KICK, index, kick));
        call.into_iter().chain(kick).collect()
    }

    /// Returns the message that enables the ring or disables it, if the front end has sent one.
    fn enable_message(&self, index: u32) -> Option<Message> {
        let is_enabled = self.is_enabled?;
        Some(Message::request(SET_VRING_ENABLE, &u32s(index, is_enabled.into()), vec![]))
    }
}

fn regions(message: &Message) -> Vec<Region> {
    let bytes = message.payload().get(REGIONS_AT..).unwrap_or_default();
    let regions = bytes.as_chunks().0.iter().zip(&message.descriptors);
    regions.map(|(&bytes, file)| Region { bytes, file: file.clone() }).collect()
}

fn u32s(first: u32, second: u32) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

fn of_ring(number: u32, index: u32, descriptor: &Arc<OwnedFd>) -> Message {
    Message::request(number, &u64::from(index).to_le_bytes(), vec![descriptor.clone()])
}
