//! A driver that keeps a number of requests in flight and does as little else as possible.
//!
//! Buffers and descriptor tables are laid out once for each slot. A request costs the copy of its header and arguments,
//! 64 bytes of descriptors, and the ring's own words.

use std::{
    hint,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use transom_frontend::{
    FrontEnd,
    message::HANG_AFTER,
    queue::Queue,
    ram::{Buffer, Ram},
    ring::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE},
};
use transom_wire::header::{InHeader, OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use super::script::{Request, Requests, Shape};

/// How the driver waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Poll the ring.
    Poll,
    /// Sleep until the daemon notifies.
    Sleep,
}

/// The driver of one ring.
pub(crate) struct Driver {
    queue: Queue,
    waiting: Waiting,
    unique: u64,
    // Held for its connection.
    _front_end: FrontEnd,
}

/// Room for arguments followed by a name, or for a batch of inodes.
const ARGS_LEN_MAX: usize = 4096;
/// Room for replies without data.
const REPLY_LEN_MAX: usize = 256;

/// The memory of one request in flight.
struct Slot {
    descriptor: u16,
    table: Buffer,
    request: Buffer,
    header: Buffer,
    reply: Buffer,
    data: Buffer,
    sent: Instant,
    unique: u64,
    expected_error: i32,
    room: usize,
}

impl Driver {
    pub(crate) fn new(front_end: FrontEnd, queue: Queue, waiting: Waiting) -> Self {
        Self { queue, waiting, unique: 0, _front_end: front_end }
    }

    /// Sends `count` requests, from each script one at a time, and returns the time until the last reply.
    pub(crate) fn run(
        &mut self,
        scripts: &mut [impl Requests],
        shape: Shape,
        count: u32,
        mut latencies: Option<&mut Histogram<u64>>,
    ) -> anyhow::Result<Duration> {
        let ram = self.queue.ram().clone();
        let mut slots = Vec::with_capacity(scripts.len());
        for _ in 0..scripts.len() {
            let Some(descriptor) = self.queue.ring.take() else { bail!("more requests than descriptors") };
            slots.push(Slot::new(&ram, descriptor, shape));
        }
        let begun = Instant::now();
        let mut sent = 0;
        let mut answered = 0;
        for (slot, script) in slots.iter_mut().zip(scripts.iter_mut()).take(count as usize) {
            self.send(&ram, slot, &script.next(&[]), shape);
            sent += 1;
        }
        self.queue.notify()?;
        while answered < count {
            let (head, used_len) = self.next_used()?;
            let Some(index) = slots.iter().position(|slot| u32::from(slot.descriptor) == head) else {
                bail!("the device completed chain {head}, which is not under way");
            };
            answered += 1;
            let (slot, script) = (&mut slots[index], &mut scripts[index]);
            if let Some(latencies) = latencies.as_deref_mut() {
                latencies.saturating_record(slot.sent.elapsed().as_nanos() as u64);
            }
            let reply = slot.check(&ram, used_len)?;
            if sent < count {
                self.send(&ram, slot, &script.next(&reply), shape);
                self.queue.notify()?;
                sent += 1;
            } else {
                script.end(&reply);
            }
        }
        let elapsed = begun.elapsed();
        let descriptors: Vec<u16> = slots.iter().map(|slot| slot.descriptor).collect();
        self.queue.ring.give_back(&descriptors);
        Ok(elapsed)
    }

    fn send(&mut self, ram: &Ram, slot: &mut Slot, request: &Request, shape: Shape) {
        self.unique += 2;
        slot.unique = self.unique;
        slot.expected_error = request.expected_error;
        let data_in = if request.has_data { shape.data_in } else { 0 };
        let header = InHeader {
            len: ((size_of::<InHeader>() + request.args.len() + data_in) as u32).into(),
            opcode: (request.opcode as u32).into(),
            unique: self.unique.into(),
            nodeid: request.nodeid.into(),
            uid: 0.into(),
            gid: 0.into(),
            pid: 1.into(),
            total_extlen: 0.into(),
            padding: 0.into(),
        };
        ram.write(slot.request.addr(), header.as_bytes());
        ram.write(slot.request.addr() + size_of::<InHeader>() as u64, &request.args);
        let is_data_out = request.has_data && shape.data_out > 0;
        slot.room = if is_data_out { shape.data_out } else { request.room };

        let request_len = size_of::<InHeader>() + request.args.len();
        let out = if is_data_out { slot.data.addr() } else { slot.reply.addr() };
        let pieces = [
            (slot.request.addr(), request_len, 0),
            (slot.data.addr(), data_in, 0),
            (slot.header.addr(), if request.is_answered { size_of::<OutHeader>() } else { 0 }, WRITE),
            (out, if request.is_answered { slot.room } else { 0 }, WRITE),
        ];
        let count = pieces.iter().filter(|(_, len, _)| *len > 0).count() as u16;
        for (index, &(addr, len, write)) in (0..).zip(pieces.iter().filter(|(_, len, _)| *len > 0)) {
            let more = if index + 1 < count { NEXT } else { 0 };
            let descriptor = Descriptor { addr, len: len as u32, flags: write | more, next: index + 1 };
            ram.write(slot.table.addr() + u64::from(index) * DESCRIPTOR_LEN as u64, &descriptor.to_bytes());
        }
        let len = u32::from(count) * DESCRIPTOR_LEN as u32;
        let whole = Descriptor { addr: slot.table.addr(), len, flags: INDIRECT, next: 0 };
        self.queue.ring.set_descriptor(slot.descriptor, whole);
        slot.sent = Instant::now();
        self.queue.ring.publish(slot.descriptor);
    }

    fn next_used(&mut self) -> anyhow::Result<(u32, u32)> {
        let begun = Instant::now();
        loop {
            for _ in 0..10_000 {
                if let Some(used) = self.queue.ring.pop_used() {
                    return Ok(used);
                }
                if self.waiting == Waiting::Sleep {
                    break;
                }
                hint::spin_loop();
            }
            ensure!(begun.elapsed() < HANG_AFTER, "nothing completed for {} s", HANG_AFTER.as_secs());
            if self.waiting == Waiting::Sleep && !self.queue.ring.enable_call() {
                self.queue.call.wait(HANG_AFTER)?;
            }
        }
    }
}

impl Slot {
    fn new(ram: &Ram, descriptor: u16, shape: Shape) -> Self {
        const PAGE: u64 = 4096;
        let data = ram.alloc(shape.data_bytes().max(1) as u64, PAGE);
        if shape.data_in > 0 {
            ram.write(data.addr(), &vec![0x66; shape.data_in]);
        }
        Self {
            descriptor,
            table: ram.alloc(4 * DESCRIPTOR_LEN as u64, 16),
            request: ram.alloc(ARGS_LEN_MAX as u64, 8),
            header: ram.alloc(size_of::<OutHeader>() as u64, 8),
            reply: ram.alloc(REPLY_LEN_MAX as u64, 8),
            data,
            sent: Instant::now(),
            unique: 0,
            expected_error: 0,
            room: 0,
        }
    }

    /// Checks the reply's header and returns the bytes after it, unless they are data.
    fn check(&self, ram: &Ram, used_len: u32) -> anyhow::Result<Vec<u8>> {
        if used_len == 0 {
            return Ok(Vec::new());
        }
        let bytes = ram.read(self.header.addr(), size_of::<OutHeader>());
        let Ok(header) = OutHeader::read_from_bytes(&bytes) else { bail!("a reply without a header") };
        ensure!(
            header.unique.get() == self.unique && header.error.get() == self.expected_error,
            "error {} ({}) answers request {} where error {} was expected",
            header.error.get(),
            rustix::io::Errno::from_raw_os_error(-header.error.get()),
            self.unique,
            self.expected_error
        );
        let payload = (used_len as usize).saturating_sub(size_of::<OutHeader>());
        Ok(ram.read(self.reply.addr(), payload.min(REPLY_LEN_MAX)))
    }
}
