//! A thread of a mount whose requests come by io_uring.
//!
//! It is a [`Lane`] with the queue of the daemon, and serves what comes by `/dev/fuse` as such; slots behind those of the
//! lane are the entries' own. What lies where in an entry's slot: the payload always at the same place, which the kernel knows.
//! Where a request has none, the reply is written there. Where it has, the reply is written behind it, and moved when it
//! has come: it is short then.

use std::{
    convert::Infallible,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::io::Errno;
use transom_guest::{ring::Used, transport::Transport as _};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
};
use zerocopy::IntoBytes as _;

use super::{
    READ_SLOTS,
    body_len::BodyLen,
    ring::{Event, KernelRing},
};
use crate::{
    fuse::{
        End,
        answers::reply_header,
        lane::Lane,
        reply_room::{self, ARGS_LEN},
        slots::{DATA_LEN_MAX, segment},
    },
    platform::now_ns,
};

/// What is watched: the end.
const STOP: u32 = 0;
/// The daemon's word that it has used something.
const CALL: u32 = 1;
/// What comes by `/dev/fuse`.
const DEVICE: u32 = 2;
/// Answers that wait for a call while there is more to do: so many callers wait for their processor.
const PENDING_MAX: usize = 8;
/// The slot of the first entry: behind those of the lane, and its slot to spare.
const FIRST_SLOT: u16 = READ_SLOTS + 1;

pub(in crate::fuse) struct UringLane {
    /// To end before the memory, which both keep.
    ring: KernelRing,
    lane: Lane,
    /// Of the kernel, whose requests come here.
    queues: Vec<u16>,
    /// Of each queue.
    entries: u16,
    /// By entry: the request in it.
    in_flight: Vec<InFlight>,
    /// Something may wait to be read from `/dev/fuse`.
    is_readable: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    unique: u64,
    commit_id: u64,
    /// Where the daemon writes the reply.
    reply: usize,
    body_len: BodyLen,
}

impl UringLane {
    /// A lane that nothing has come for yet.
    pub(super) fn new(mut lane: Lane, ring: KernelRing, queues: Vec<u16>, entries: u16) -> Self {
        lane.slots.keep(READ_SLOTS);
        let in_flight = vec![InFlight::default(); queues.len() * usize::from(entries)];
        Self { ring, lane, queues, entries, in_flight, is_readable: true }
    }

    /// Of its thread.
    pub(in crate::fuse) fn name(&self) -> String {
        self.lane.name()
    }

    /// Carries messages until the mount ends.
    pub(in crate::fuse) fn run(mut self) {
        let ended = self.begin().and_then(|()| {
            loop {
                self.turn()?;
            }
        });
        let Err::<Infallible, _>(end) = ended;
        self.lane.shared.end(end);
    }

    fn begin(&mut self) -> Result<(), End> {
        let enabled = self.ring.enable(&self.lane.kernel);
        enabled.map_err(|error| End::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        [STOP, CALL, DEVICE].into_iter().try_for_each(|token| self.watch(token))?;
        for entry in 0..self.in_flight.len() as u16 {
            let payload = self.payload(entry);
            self.ring.register(self.queue(entry), entry, payload, DATA_LEN_MAX).map_err(End::Kernel)?;
        }
        self.ring.flush().map(drop).map_err(End::Kernel)
    }

    fn watch(&mut self, token: u32) -> Result<(), End> {
        let Lane { shared, kernel, queue, index, .. } = &self.lane;
        let fd: BorrowedFd<'_> = match token {
            STOP => shared.stop(),
            CALL => shared.device.call_fd(*queue).ok_or(End::Gone)?,
            // It becomes readable for all threads: one is enough.
            _ if *index > 0 => return Ok(()),
            _ => kernel.as_fd(),
        };
        self.ring.watch(fd, token).map_err(End::Kernel)
    }

    /// Carries what there is, then watches or sleeps until there is more.
    fn turn(&mut self) -> Result<(), End> {
        let pending = self.ring.pending();
        // Both, whatever the first says.
        if self.complete()? | self.take()? {
            self.lane.worked();
            // Answers wait for others, not for whatever else there is to do.
            if self.ring.pending() == pending || self.ring.pending() >= PENDING_MAX {
                self.ring.flush().map_err(End::Kernel)?;
            }
            return Ok(());
        }
        if self.lane.pace.watches(now_ns()) {
            if !self.ring.flush().map_err(End::Kernel)? {
                self.lane.yield_now();
            }
            return Ok(());
        }
        if !self.lane.ring.arm() {
            self.ring.wait().map_err(End::Kernel)?;
            self.lane.pace.slept();
        }
        self.lane.ring.disarm();
        if self.lane.shared.device.is_gone() { Err(End::Gone) } else { Ok(()) }
    }

    /// Hands replies that have come to the kernel; tells whether there were any.
    fn complete(&mut self) -> Result<bool, End> {
        let mut has_some = false;
        while let Some(used) = self.lane.ring.pop().map_err(|broken| End::Broken(broken.0))? {
            has_some = true;
            match used.cookie.checked_sub(FIRST_SLOT) {
                Some(entry) => self.reply(entry, used)?,
                None => self.lane.completed(used)?,
            }
        }
        Ok(has_some)
    }

    fn reply(&mut self, entry: u16, used: Used) -> Result<(), End> {
        let InFlight { unique, commit_id, reply, body_len } = self.in_flight[usize::from(entry)];
        let memory = &self.lane.memory.memory;
        let written = used.written_bytes as usize;
        let header = reply_header(memory, reply, written)
            .filter(|header| header.unique.get() == unique && body_len.is_that_of(header));
        let header = header.unwrap_or_else(|| {
            tracing::warn!(unique, written, "the daemon's reply is none; the request fails with EIO");
            let len = (size_of::<OutHeader>() as u32).into();
            OutHeader { len, error: (-Errno::IO.raw_os_error()).into(), unique: unique.into() }
        });
        let body_len = header.len.get() as usize - size_of::<OutHeader>();
        let (body, payload) = (reply + size_of::<OutHeader>(), self.payload(entry));
        if body != payload {
            memory.copy_from(payload, memory, body, body_len);
        }
        self.ring.commit(self.queue(entry), entry, commit_id, &header, body_len).map_err(End::Kernel)
    }

    /// Takes requests of the kernel; tells whether there were any.
    fn take(&mut self) -> Result<bool, End> {
        let mut has_some = false;
        while let Some(event) = self.ring.next() {
            has_some = true;
            match event {
                Event::Entry(entry, Ok(())) => self.submit(entry)?,
                // The end; `/dev/fuse` says which.
                Event::Entry(_, Err(Errno::NOTCONN | Errno::CONNABORTED)) => self.is_readable = true,
                Event::Entry(_, Err(errno)) => return Err(End::Kernel(errno)),
                Event::Readable(STOP, _) => return Err(End::Stopped),
                Event::Readable(token, goes_on) => {
                    self.is_readable |= token == DEVICE;
                    if !goes_on {
                        self.watch(token)?;
                    }
                }
            }
        }
        if self.is_readable && self.lane.can_read() {
            self.is_readable = self.lane.take_one()?;
            has_some |= self.is_readable;
        }
        Ok(has_some)
    }

    /// Puts the request of `entry` into the daemon's ring.
    fn submit(&mut self, entry: u16) -> Result<(), End> {
        let request = self.ring.request(entry);
        let len = request.header.len.get() as usize;
        let args_len = len.checked_sub(size_of::<InHeader>() + request.payload_len);
        let args = args_len.and_then(|len| request.args.get(..len)).ok_or(End::Kernel(Errno::PROTO))?;
        let (slot, payload) = (FIRST_SLOT + entry, self.payload(entry));
        let (start, room) = if request.payload_len == 0 {
            (self.lane.slots.start(slot), self.lane.slots.room_at_data(slot))
        } else {
            let head_len = size_of::<InHeader>() + args.len();
            (payload - head_len, self.lane.slots.room_behind_data(slot, request.payload_len))
        };
        let memory = &self.lane.memory.memory;
        memory.write(start, request.header.as_bytes());
        memory.write(start + size_of::<InHeader>(), args);
        let mut first = [0; ARGS_LEN];
        let known = args.len().min(ARGS_LEN);
        first[..known].copy_from_slice(&args[..known]);
        let opcode = Opcode::from_u32(request.header.opcode.get());
        let room_len = reply_room::len_bytes(opcode, &first).min(room.len_bytes);

        let (unique, commit_id) = (request.header.unique.get(), request.commit_id);
        let body_len = BodyLen::of(opcode, &first);
        self.in_flight[usize::from(entry)] = InFlight { unique, commit_id, reply: room.offset, body_len };
        let (readable, writable) = ([segment(memory, start, len)], [segment(memory, room.offset, room_len)]);
        self.lane.ring.add(&readable, &writable, slot).expect("an entry stands for a chain that the ring has room for");
        if self.lane.ring.needs_notify() {
            self.lane.shared.device.notify(self.lane.queue);
        }
        Ok(())
    }

    /// Where in the memory the data of `entry` lies.
    fn payload(&self, entry: u16) -> usize {
        self.lane.slots.data(FIRST_SLOT + entry)
    }

    /// Of the kernel, that `entry` belongs to.
    fn queue(&self, entry: u16) -> u16 {
        self.queues[usize::from(entry / self.entries)]
    }
}
