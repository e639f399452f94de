//! A vhost-user front end for tests and measurements: a guest and its VMM without either.
//!
//! [`FrontEnd`] connects to a back end, [`queue::Queue`] is the driver of one virtqueue, [`fuse::Session`] speaks FUSE
//! over it. Below them everything is open to misuse: [`message::Channel`] sends any bytes, [`ring::Ring`] writes any
//! descriptor, [`ram::Ram`] any memory. [`window::Window`] maps what the back end asks for.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod fuse;
pub mod message;
pub mod queue;
pub mod ram;
pub mod ring;
pub mod turn;
pub mod wake;
pub mod window;

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
};

use anyhow::{Context as _, ensure};

use message::{Channel, mem_table, protocol_feature, request, u32s, u64s};
use queue::Queue;
use ram::Ram;
use ring::Ring;
use wake::{Wake, WakeKind};
use window::{Rules, Window};

/// VIRTIO_RING_F_INDIRECT_DESC.
const INDIRECT_DESC: u64 = 1 << 28;
/// VIRTIO_RING_F_EVENT_IDX.
const EVENT_IDX: u64 = 1 << 29;
/// VHOST_USER_F_PROTOCOL_FEATURES.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// VIRTIO_F_VERSION_1.
const VERSION_1: u64 = 1 << 32;

/// What the front end offers and asks for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Descriptors of each queue.
    pub queue_size: u16,
    /// Use the event index where the back end has it.
    pub event_idx: bool,
    /// Use indirect descriptors where the back end has them.
    pub indirect: bool,
    /// What kicks and calls are made of.
    pub wake: WakeKind,
    /// Bytes of guest memory.
    pub ram_bytes: u64,
    /// Ask for an acknowledgement of every message where the back end gives them.
    pub acknowledged: bool,
    /// Ask for the window where the back end has one, and be such a front end with it.
    pub window: Option<Rules>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_size: 64,
            event_idx: true,
            indirect: true,
            wake: WakeKind::EventFd,
            ram_bytes: 16 << 20,
            acknowledged: true,
            window: None,
        }
    }
}

/// A connection to a back end, negotiated, with the memory handed over.
pub struct FrontEnd {
    /// The connection, for tests that misuse it.
    pub channel: Channel,
    /// The guest's memory.
    pub ram: Ram,
    /// Of the back end.
    pub protocol_features: u64,
    /// Queues that the back end has, the high-priority one included.
    pub queue_count: u64,
    /// The window, where it was asked for and there is one.
    pub window: Option<Window>,
    options: Options,
    features: u64,
}

impl FrontEnd {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path, options: Options) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
        Self::over(stream, options)
    }

    /// Negotiates over `stream` and hands the memory over.
    pub fn over(stream: UnixStream, options: Options) -> anyhow::Result<Self> {
        let mut channel = Channel::new(stream)?;
        let offered = channel.ask_u64(request::GET_FEATURES)?;
        ensure!(offered & VERSION_1 != 0, "the back end offers {offered:#x}, without VERSION_1");
        ensure!(offered & PROTOCOL_FEATURES != 0, "the back end offers {offered:#x}, without PROTOCOL_FEATURES");
        let ring_features = [(options.event_idx, EVENT_IDX), (options.indirect, INDIRECT_DESC)];
        let wanted = ring_features.into_iter().filter(|(is_wanted, _)| *is_wanted).fold(0, |all, (_, bit)| all | bit);
        let features = offered & (VERSION_1 | PROTOCOL_FEATURES | wanted);

        let protocol_features = channel.ask_u64(request::GET_PROTOCOL_FEATURES)?;
        let known = protocol_feature::MQ
            | protocol_feature::REPLY_ACK
            | protocol_feature::CONFIG
            | protocol_feature::RESET_DEVICE
            | protocol_feature::CONFIGURE_MEM_SLOTS;
        let with_window = options.window.map_or(0, |rules| {
            let shared_object = if rules.has_shared_objects { protocol_feature::SHARED_OBJECT } else { 0 };
            protocol_feature::BACKEND_REQ | protocol_feature::BACKEND_SEND_FD | protocol_feature::SHMEM | shared_object
        });
        channel.tell(request::SET_PROTOCOL_FEATURES, &u64s(&[protocol_features & (known | with_window)]), &[])?;
        channel.acknowledged = options.acknowledged && protocol_features & protocol_feature::REPLY_ACK != 0;
        let queue_count = match protocol_features & protocol_feature::MQ {
            0 => 2,
            _ => channel.ask_u64(request::GET_QUEUE_NUM)?,
        };
        channel.tell(request::SET_OWNER, &[], &[])?;
        let window = match options.window.filter(|_| protocol_features & protocol_feature::SHMEM != 0) {
            Some(rules) => open_window(&channel, rules)?,
            None => None,
        };
        channel.tell(request::SET_FEATURES, &u64s(&[features]), &[])?;
        let ram = Ram::new(options.ram_bytes)?;
        let this = Self { channel, ram, protocol_features, queue_count, window, options, features };
        this.send_memory()?;
        Ok(this)
    }

    /// Hands the whole memory over.
    pub fn send_memory(&self) -> anyhow::Result<()> {
        self.channel.tell(request::SET_MEM_TABLE, &mem_table(&[self.ram.region()]), &[self.ram.file()])
    }

    /// The features in force.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Sets queue `index` up and enables it.
    pub fn start_queue(&self, index: u32) -> anyhow::Result<Queue> {
        let ring = Ring::new(&self.ram, self.options.queue_size, self.features & EVENT_IDX != 0);
        let (kick, call) = (Wake::new(self.options.wake)?, Wake::new(self.options.wake)?);
        let queue = Queue::new(&self.ram, ring, kick, call, self.features & INDIRECT_DESC != 0);
        self.restart_queue(index, &queue, 0)?;
        Ok(queue)
    }

    /// Sets queue `index` up with the ring of `queue`, to go on at the available index `base`.
    pub fn restart_queue(&self, index: u32, queue: &Queue, base: u16) -> anyhow::Result<()> {
        self.send_ring(index, &queue.ring)?;
        self.channel.tell(request::SET_VRING_BASE, &u32s(&[index, u32::from(base)]), &[])?;
        let number = u64s(&[u64::from(index)]);
        self.channel.tell(request::SET_VRING_CALL, &number, &[queue.call.waking_end()])?;
        self.channel.tell(request::SET_VRING_KICK, &number, &[queue.kick.waiting_end()])?;
        self.enable(index, true)
    }

    /// Tells the back end size, addresses and beginning of a ring.
    pub fn send_ring(&self, index: u32, ring: &Ring) -> anyhow::Result<()> {
        self.channel.tell(request::SET_VRING_NUM, &u32s(&[index, u32::from(ring.size())]), &[])?;
        self.channel.tell(request::SET_VRING_BASE, &u32s(&[index, 0]), &[])?;
        self.send_addresses(index, ring.addresses())
    }

    /// Tells the back end where descriptor table, available and used ring lie, by guest addresses.
    pub fn send_addresses(&self, index: u32, [table, avail, used]: [u64; 3]) -> anyhow::Result<()> {
        let user = |addr| self.ram.user_addr(addr);
        let addresses = u64s(&[user(table), user(used), user(avail), 0]);
        self.channel.tell(request::SET_VRING_ADDR, &[u32s(&[index, 0]), addresses].concat(), &[])
    }

    /// Enables or disables queue `index`.
    pub fn enable(&self, index: u32, is_enabled: bool) -> anyhow::Result<()> {
        self.channel.tell(request::SET_VRING_ENABLE, &u32s(&[index, u32::from(is_enabled)]), &[])
    }

    /// Stops queue `index`; returns the available index up to which requests were taken.
    pub fn stop_queue(&self, index: u32) -> anyhow::Result<u16> {
        let reply = self.channel.ask(request::GET_VRING_BASE, &u32s(&[index, 0]))?;
        ensure!(reply.len() == 8 && reply[..4] == index.to_le_bytes(), "GET_VRING_BASE answered {reply:?}");
        Ok(u16::from_le_bytes([reply[4], reply[5]]))
    }

    /// Resets the device, and with it the window where the rules say so; agrees on the features again.
    pub fn reset(&self) -> anyhow::Result<()> {
        self.channel.tell(request::RESET_DEVICE, &[], &[])?;
        self.channel.tell(request::SET_FEATURES, &u64s(&[self.features]), &[])?;
        self.window.iter().for_each(Window::device_was_reset);
        Ok(())
    }

    /// As QEMU does when the guest resets the device: stops its queues, resets it and ends its mappings, at one go.
    pub fn stop_and_reset(&self, queues: &[u32]) -> anyhow::Result<()> {
        let _turn = self.channel.turn().take();
        for &queue in queues {
            self.stop_queue(queue)?;
        }
        self.reset()
    }

    /// The window. Panics without one.
    pub fn expect_window(&self) -> &Window {
        self.window.as_ref().expect("the window was asked for, and the back end has one")
    }

    /// The first `len` bytes of the configuration space.
    pub fn config(&self, len: usize) -> anyhow::Result<Vec<u8>> {
        let payload = [u32s(&[0, len as u32, 0]), vec![0; len]].concat();
        let reply = self.channel.ask(request::GET_CONFIG, &payload)?;
        ensure!(reply.len() == 12 + len, "GET_CONFIG of {len} bytes answered {} bytes", reply.len());
        Ok(reply[12..].to_vec())
    }
}

/// Hands the back end a channel for its own requests, and asks it for the window; `None` where it has no such region.
fn open_window(channel: &Channel, rules: Rules) -> anyhow::Result<Option<Window>> {
    const REGIONS: usize = 256;
    let (ours, theirs) = UnixStream::pair()?;
    channel.tell(request::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()])?;
    drop(theirs);
    let reply = channel.ask(request::GET_SHMEM_CONFIG, &[])?;
    ensure!(reply.len() == 8 + 8 * REGIONS, "GET_SHMEM_CONFIG answered {} bytes", reply.len());
    let sizes: Vec<u64> =
        reply[8..].chunks_exact(8).map(|size| u64::from_le_bytes(size.try_into().expect("eight bytes"))).collect();
    let count = u32::from_le_bytes(reply[..4].try_into().expect("four bytes")) as usize;
    ensure!(
        sizes.iter().filter(|&&size| size > 0).count() == count,
        "{count} regions, and {} with a size",
        sizes.iter().filter(|&&size| size > 0).count()
    );
    let sum: u64 = sizes.iter().sum();
    ensure!(sum == 0 || sum.is_power_of_two(), "the regions have {sum} bytes together, which QEMU does not bear");
    match sizes[0] {
        0 => Ok(None),
        len => Ok(Some(Window::new(len, rules, ours, channel.turn().clone())?)),
    }
}
