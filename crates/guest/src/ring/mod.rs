//! A split virtqueue from the driver's side.
//!
//! The driver's own state is private and never read back from the shared parts. Each value that the device writes (used
//! index, ids, lengths) is loaded once and checked against that state. After a protocol violation the ring stays
//! broken. Nothing here locks or waits: that is up to the [`queue`](crate::queue). Source: virtio 1.3 §2.7.

mod barriers;
mod free;
mod layout;
mod memory;

use alloc::{sync::Arc, vec, vec::Vec};

use zerocopy::IntoBytes as _;

use crate::{
    dma::{DmaBuffer, DmaError, DmaOps},
    transport::QueueAddresses,
};

pub use barriers::Barriers;
use free::FreeList;
pub use layout::LEN_MAX;
use layout::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor};
pub(crate) use memory::RingMemory;

/// The length of a descriptor, in bytes.
pub(crate) const DESCRIPTOR_LEN: usize = size_of::<Descriptor>();

/// A piece of memory in the device's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its start address.
    pub address: u64,
    /// Its length in bytes.
    pub len_bytes: u32,
}

/// Parameters of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingSettings {
    /// Number of descriptors: a power of two, at most [`LEN_MAX`].
    pub len: u16,
    /// Maximum number of chains in flight, at most `len`.
    pub chains_max: u16,
    /// Maximum length of a chain; at most `len`.
    pub segments_max: u16,
    /// VIRTIO_F_INDIRECT_DESC: each chain takes one descriptor and a table of its own.
    pub is_indirect: bool,
    /// VIRTIO_F_EVENT_IDX.
    pub has_event_index: bool,
    /// VIRTIO_F_ORDER_PLATFORM.
    pub barriers: Barriers,
}

/// A chain that the device has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The cookie that the driver passed with the chain.
    pub cookie: u16,
    /// Bytes that the device reports as written, at most the room in the chain.
    pub written_bytes: u32,
}

/// Not enough descriptors are free for a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// How the device violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

/// The driver's end of a queue.
pub struct Ring {
    memory: Arc<RingMemory>,
    settings: RingSettings,
    free: FreeList,
    /// The chains in flight, by head.
    flights: Vec<Option<Flight>>,
    in_flight: u16,
    /// The next index of the available ring.
    available: u16,
    /// The available index at the last decision whether to notify.
    notified: u16,
    /// The next index of the used ring to check.
    used: u16,
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    cookie: u16,
    /// Number of the ring's descriptors that it takes.
    descriptors: u16,
    room_bytes: u32,
}

impl Ring {
    /// Creates an empty ring in memory allocated by `ops`.
    ///
    /// Errors: those of [`DmaOps::allocate`].
    pub fn new(ops: &Arc<dyn DmaOps>, settings: RingSettings) -> Result<Self, DmaError> {
        assert!(settings.len.is_power_of_two() && settings.len <= LEN_MAX, "{settings:?}");
        assert!(settings.chains_max <= settings.len && settings.segments_max <= settings.len, "{settings:?}");
        let heads = if settings.is_indirect { settings.chains_max } else { settings.len };
        let ring = Self {
            memory: Arc::new(RingMemory::new(ops, &settings)?),
            settings,
            free: FreeList::new(heads),
            flights: vec![None; usize::from(heads)],
            in_flight: 0,
            available: 0,
            notified: 0,
            used: 0,
            broken: None,
        };
        ring.memory.want_interrupts(false);
        Ok(ring)
    }

    /// Returns the device's addresses of the ring's parts.
    pub fn addresses(&self) -> QueueAddresses {
        self.memory.addresses()
    }

    /// Returns the shared memory, for checking the used index without the ring.
    pub(crate) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Returns the used index up to which chains were popped.
    pub(crate) fn used_index(&self) -> u16 {
        self.used
    }

    /// Returns the number of chains in flight.
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Makes a chain available: first what the device reads, then what it writes. [`Self::pop`] returns `cookie` with
    /// the used chain.
    ///
    /// There is at least one segment and at most `segments_max`, no segment is empty, and their lengths sum to less
    /// than 4 GiB. Errors: [`Full`], and nothing was added.
    pub fn add(&mut self, readable: &[Segment], writable: &[Segment], cookie: u16) -> Result<(), Full> {
        let count = readable.len() + writable.len();
        assert!(count <= usize::from(self.settings.segments_max), "{count} segments");
        self.add_chain(None, readable, writable, cookie)
    }

    /// As [`Self::add`], for a chain of up to `len` segments, whose table is in memory of its own: room for as many
    /// descriptors. The caller keeps `table` until the chain was used. The ring is indirect.
    pub(crate) fn add_long(
        &mut self,
        table: &DmaBuffer,
        readable: &[Segment],
        writable: &[Segment],
        cookie: u16,
    ) -> Result<(), Full> {
        let count = readable.len() + writable.len();
        assert!(self.settings.is_indirect && count <= usize::from(self.settings.len), "{count} segments");
        self.add_chain(Some(table), readable, writable, cookie)
    }

    fn add_chain(
        &mut self,
        table: Option<&DmaBuffer>,
        readable: &[Segment],
        writable: &[Segment],
        cookie: u16,
    ) -> Result<(), Full> {
        let count = readable.len() + writable.len();
        assert!(count > 0, "a chain without segments");
        let descriptors = if self.settings.is_indirect { 1 } else { count as u16 };
        if self.in_flight == self.settings.chains_max {
            return Err(Full);
        }
        let head = self.free.take(descriptors).ok_or(Full)?;
        let all =
            readable.iter().map(|segment| (segment, 0)).chain(writable.iter().map(|segment| (segment, DESC_WRITE)));
        if self.settings.is_indirect {
            self.write_table(head, table, all, count);
        } else {
            self.write_chain(head, all, count);
        }
        let room_bytes = writable.iter().map(|segment| segment.len_bytes).sum();
        self.flights[usize::from(head)] = Some(Flight { cookie, descriptors, room_bytes });
        self.in_flight += 1;
        self.memory.publish(self.available, head);
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    fn write_table<'a>(
        &self,
        head: u16,
        table: Option<&DmaBuffer>,
        segments: impl Iterator<Item = (&'a Segment, u16)>,
        count: usize,
    ) {
        for (index, (segment, flags)) in segments.enumerate() {
            let next = if index + 1 < count { DESC_NEXT } else { 0 };
            let descriptor = Descriptor::new(segment, flags | next, index as u16 + 1);
            match table {
                Some(table) => table.write(index * DESCRIPTOR_LEN, descriptor.as_bytes()),
                None => self.memory.write_indirect(head, index as u16, &descriptor),
            }
        }
        let address = table.map_or_else(|| self.memory.table_address(head), |table| table.address());
        let table = Segment { address, len_bytes: (count * DESCRIPTOR_LEN) as u32 };
        self.memory.write_descriptor(head, &Descriptor::new(&table, DESC_INDIRECT, 0));
    }

    fn write_chain<'a>(&self, head: u16, segments: impl Iterator<Item = (&'a Segment, u16)>, count: usize) {
        let mut at = head;
        for (index, (segment, flags)) in segments.enumerate() {
            let next = if index + 1 < count { DESC_NEXT } else { 0 };
            let following = self.free.next(at);
            self.memory.write_descriptor(at, &Descriptor::new(segment, flags | next, following));
            at = following;
        }
    }

    /// Returns whether the device wants to be notified of the chains added since the last call.
    pub fn needs_notify(&mut self) -> bool {
        let (old, new) = (self.notified, self.available);
        self.notified = new;
        old != new && self.memory.device_wants_notify(old, new)
    }

    /// Returns whether the device has used a chain that was not popped yet; a single load, for polling.
    pub fn has_used(&self) -> bool {
        self.memory.device_used_index() != self.used
    }

    /// Takes back the next chain that the device has used, in the device's order.
    ///
    /// Errors: the device named a chain that is not in flight, claims more bytes than there was room for, or is ahead
    /// of what was added. The ring is then broken and returns nothing else.
    pub fn pop(&mut self) -> Result<Option<Used>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let popped = self.pop_checked();
        self.broken = popped.err();
        popped
    }

    fn pop_checked(&mut self) -> Result<Option<Used>, Broken> {
        let ready = self.memory.device_used_index().wrapping_sub(self.used);
        if ready == 0 {
            return Ok(None);
        }
        if ready > self.in_flight {
            return Err(Broken("its used index is ahead of what it was given"));
        }
        let (id, written_bytes) = self.memory.used_element(self.used);
        let head = u16::try_from(id).map_err(|_| Broken("it used a descriptor that the queue does not have"))?;
        let flight = self.flights.get_mut(usize::from(head)).and_then(Option::take);
        let flight = flight.ok_or(Broken("it used a descriptor that it was not given"))?;
        if written_bytes > flight.room_bytes {
            return Err(Broken("it wrote more than there was room for"));
        }
        self.free.give(head, flight.descriptors);
        self.in_flight -= 1;
        self.used = self.used.wrapping_add(1);
        Ok(Some(Used { cookie: flight.cookie, written_bytes }))
    }

    /// Requests an interrupt for the next chain that the device uses. Returns whether it has used one already, for
    /// which there may be no interrupt.
    pub fn arm(&mut self) -> bool {
        if self.settings.has_event_index {
            self.memory.interrupt_after(self.used);
        } else {
            self.memory.want_interrupts(true);
        }
        self.memory.has_used_after_fence(self.used)
    }

    /// Stops requesting interrupts. With an event index there is nothing to do: the device passes it only once.
    pub fn disarm(&mut self) {
        if !self.settings.has_event_index {
            self.memory.want_interrupts(false);
        }
    }
}
