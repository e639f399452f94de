//! A vhost-user front end for tests and measurements: stands in for a guest and its VMM.
//!
//! [`FrontEnd`] connects to a back end, [`queue::Queue`] is the driver of one virtqueue, and [`fuse::Session`] speaks
//! FUSE over it. The layers below can be misused deliberately: [`message::Channel`] sends any bytes, [`ring::Ring`]
//! writes any descriptor, [`ram::Ram`] writes anywhere in guest memory. [`window::Window`] maps what the back end
//! requests, and [`dirty::DirtyLog`] receives what it marks.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod device_state;
pub mod dirty;
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

/// VIRTIO_FS_F_NOTIFICATION.
pub const NOTIFICATION: u64 = 1;
/// VIRTIO_RING_F_INDIRECT_DESC.
const INDIRECT_DESC: u64 = 1 << 28;
/// VIRTIO_RING_F_EVENT_IDX.
const EVENT_IDX: u64 = 1 << 29;
/// VHOST_USER_F_PROTOCOL_FEATURES.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// VIRTIO_F_VERSION_1.
const VERSION_1: u64 = 1 << 32;

/// What the front end offers and requests.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of descriptors of each queue.
    pub queue_size: u16,
    /// Use the event index if the back end supports it.
    pub event_idx: bool,
    /// Use indirect descriptors if the back end supports them.
    pub indirect: bool,
    /// The kind of descriptor used for kicks and calls.
    pub wake: WakeKind,
    /// Bytes of guest memory.
    pub ram_bytes: u64,
    /// Request an acknowledgement of every message if the back end supports that.
    pub acknowledged: bool,
    /// Use the window if the back end has one, with the behaviour that these rules describe.
    pub window: Option<Rules>,
    /// Use the notification queue if the back end has one.
    pub notifications: bool,
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
            notifications: false,
        }
    }
}

/// A connection to a back end, with features negotiated and the memory shared.
pub struct FrontEnd {
    /// The connection, for tests that misuse it.
    pub channel: Channel,
    /// The guest's memory.
    pub ram: Ram,
    /// The protocol features that the back end offers.
    pub protocol_features: u64,
    /// Number of queues of the back end, including the high-priority queue.
    pub queue_count: u64,
    /// The window, if it was requested and the back end has one.
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

    /// Negotiates over `stream` and shares the memory.
    pub fn over(stream: UnixStream, options: Options) -> anyhow::Result<Self> {
        let ram = Ram::new(options.ram_bytes)?;
        Self::with_memory(stream, options, ram)
    }

    /// Negotiates over `stream` and shares `ram`, which another front end may have filled: a guest that was migrated.
    pub fn with_memory(stream: UnixStream, options: Options, ram: Ram) -> anyhow::Result<Self> {
        let mut channel = Channel::new(stream)?;
        let offered = channel.ask_u64(request::GET_FEATURES)?;
        ensure!(offered & VERSION_1 != 0, "the back end offers {offered:#x}, without VERSION_1");
        ensure!(offered & PROTOCOL_FEATURES != 0, "the back end offers {offered:#x}, without PROTOCOL_FEATURES");
        let choices =
            [(options.event_idx, EVENT_IDX), (options.indirect, INDIRECT_DESC), (options.notifications, NOTIFICATION)];
        let wanted = choices.into_iter().filter(|(is_wanted, _)| *is_wanted).fold(0, |all, (_, bit)| all | bit);
        let features = offered & (VERSION_1 | PROTOCOL_FEATURES | wanted);

        let protocol_features = channel.ask_u64(request::GET_PROTOCOL_FEATURES)?;
        let known = protocol_feature::MQ
            | protocol_feature::REPLY_ACK
            | protocol_feature::CONFIG
            | protocol_feature::RESET_DEVICE
            | protocol_feature::LOG_SHMFD
            | protocol_feature::DEVICE_STATE
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
        let this = Self { channel, ram, protocol_features, queue_count, window, options, features };
        this.send_memory()?;
        Ok(this)
    }

    /// Shares the whole memory with the back end.
    pub fn send_memory(&self) -> anyhow::Result<()> {
        self.channel.tell(request::SET_MEM_TABLE, &mem_table(&[self.ram.region()]), &[self.ram.file()])
    }

    /// Returns the negotiated features.
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

    /// Sets up queue `index` with the ring of `queue`, resuming at the available index `base`.
    pub fn restart_queue(&self, index: u32, queue: &Queue, base: u16) -> anyhow::Result<()> {
        self.send_ring(index, &queue.ring)?;
        self.channel.tell(request::SET_VRING_BASE, &u32s(&[index, u32::from(base)]), &[])?;
        let number = u64s(&[u64::from(index)]);
        self.channel.tell(request::SET_VRING_CALL, &number, &[queue.call.waking_end()])?;
        self.channel.tell(request::SET_VRING_KICK, &number, &[queue.kick.waiting_end()])?;
        self.enable(index, true)
    }

    /// Sends the size, addresses and first index of a ring.
    pub fn send_ring(&self, index: u32, ring: &Ring) -> anyhow::Result<()> {
        self.channel.tell(request::SET_VRING_NUM, &u32s(&[index, u32::from(ring.size())]), &[])?;
        self.channel.tell(request::SET_VRING_BASE, &u32s(&[index, 0]), &[])?;
        self.send_addresses(index, ring.addresses())
    }

    /// Sends the guest addresses of the descriptor table, available ring and used ring.
    pub fn send_addresses(&self, index: u32, [table, avail, used]: [u64; 3]) -> anyhow::Result<()> {
        let user = |addr| self.ram.user_addr(addr);
        let addresses = u64s(&[user(table), user(used), user(avail), 0]);
        self.channel.tell(request::SET_VRING_ADDR, &[u32s(&[index, 0]), addresses].concat(), &[])
    }

    /// Enables or disables queue `index`.
    pub fn enable(&self, index: u32, is_enabled: bool) -> anyhow::Result<()> {
        self.channel.tell(request::SET_VRING_ENABLE, &u32s(&[index, u32::from(is_enabled)]), &[])
    }

    /// Stops queue `index` and returns the available index up to which requests were taken.
    pub fn stop_queue(&self, index: u32) -> anyhow::Result<u16> {
        let reply = self.channel.ask(request::GET_VRING_BASE, &u32s(&[index, 0]))?;
        ensure!(reply.len() == 8 && reply[..4] == index.to_le_bytes(), "GET_VRING_BASE answered {reply:?}");
        Ok(u16::from_le_bytes([reply[4], reply[5]]))
    }

    /// Resets the device, and with it the window if the rules say so, and negotiates the features again.
    pub fn reset(&self) -> anyhow::Result<()> {
        self.channel.tell(request::RESET_DEVICE, &[], &[])?;
        self.channel.tell(request::SET_FEATURES, &u64s(&[self.features]), &[])?;
        self.window.iter().for_each(Window::device_was_reset);
        Ok(())
    }

    /// Stops the queues, resets the device and ends its mappings in one step, as QEMU does when the guest resets the
    /// device.
    pub fn stop_and_reset(&self, queues: &[u32]) -> anyhow::Result<()> {
        let _turn = self.channel.turn().take();
        for &queue in queues {
            self.stop_queue(queue)?;
        }
        self.reset()
    }

    /// Returns the window.
    ///
    /// # Panics
    /// If there is no window.
    pub fn expect_window(&self) -> &Window {
        self.window.as_ref().expect("the window was asked for, and the back end has one")
    }

    /// Returns the first `len` bytes of the configuration space.
    pub fn config(&self, len: usize) -> anyhow::Result<Vec<u8>> {
        let payload = [u32s(&[0, len as u32, 0]), vec![0; len]].concat();
        let reply = self.channel.ask(request::GET_CONFIG, &payload)?;
        ensure!(reply.len() == 12 + len, "GET_CONFIG of {len} bytes answered {} bytes", reply.len());
        Ok(reply[12..].to_vec())
    }
}

/// Sends the back end a channel for its own requests, and queries its window. Returns `None` if it has no such region.
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
    ensure!(sum == 0 || sum.is_power_of_two(), "the regions have {sum} bytes together, which QEMU does not accept");
    match sizes[0] {
        0 => Ok(None),
        len => Ok(Some(Window::new(len, rules, ours, channel.turn().clone())?)),
    }
}
