//! One thread's way between the kernel and the daemon: a descriptor of `/dev/fuse`, a request queue, and slots.
//!
//! A request is read straight into a slot, which the chain in the ring points to; the reply is written into the same slot by
//! the daemon and handed to the kernel from there. Nothing is copied in between, and nothing of a message is changed, but for
//! answers to opens with [`passthrough`](super::passthrough), which also has requests of its own, and the numbers of inodes and
//! files where the mount may [`reconnect`](super::reconnect).
//! The thread never waits for one request: it sleeps until either side has something, so that what blocks in the daemon
//! only takes a slot. When all are taken, requests are still read, into the slot to spare: INTERRUPT and FORGET go
//! their own way, anything else waits its turn in ordinary memory ([`Backlog`](super::backlog)).

use std::sync::Arc;

use rustix::io::Errno;
use transom_guest::{
    dma::DmaMemory,
    ring::{Ring, Used},
    transport::Transport as _,
};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::interrupt::InterruptIn,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    End,
    backlog::Parked,
    kernel::{Kernel, Piece},
    pace::Pace,
    passthrough::{Kind, rights},
    reply_room,
    shared::Shared,
    sleep::Sleep,
    slots::{REQUEST_LEN_MAX, Slots, segment},
};
use crate::{arena::Arena, platform::now_ns};

/// Requests that are read before replies are looked for again.
const READS_MAX: usize = 8;
/// The greatest errno of a reply: from 512 on they are the kernel's own (`ERESTARTSYS` and others).
const ERRNO_MAX: i32 = 511;

/// Of the answer to an open, more than there is.
const OPEN_LEN_MAX: usize = 256;

/// What a lane is made of.
pub(super) struct Lane {
    pub(super) index: usize,
    /// The device's number of the queue.
    pub(super) queue: u16,
    pub(super) kernel: Arc<Kernel>,
    pub(super) shared: Arc<Shared>,
    pub(super) ring: Ring,
    pub(super) slots: Slots,
    pub(super) memory: Arc<Memory>,
    /// By slot: the request in it.
    pub(super) in_flight: Vec<InFlight>,
    /// By slot, where the mount may reconnect: the request as the kernel has sent it, but for the data of a WRITE.
    pub(super) kept: Vec<Vec<u8>>,
    pub(super) pace: Pace,
}

/// The memory of all slots.
pub(super) struct Memory {
    pub(super) memory: DmaMemory,
    /// Whose it is.
    pub(super) _arena: Arc<Arena>,
}

/// A request in a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    unique: u64,
    pub(super) len: usize,
    kind: Kind,
    pub(super) is_under_way: bool,
}

impl Lane {
    /// Of its thread.
    pub(super) fn name(&self) -> String {
        format!("transom-fuse-{}", self.index)
    }

    /// Carries messages until the connection ends, and gives what is left then.
    pub(super) fn run(mut self) -> Self {
        let limited = if self.shared.passthrough.is_on() { rights::keep_few() } else { Ok(()) };
        let ended = limited.and_then(|()| Sleep::new(&self)).and_then(|mut sleep| {
            loop {
                self.turn(&mut sleep)?;
            }
        });
        let Err::<std::convert::Infallible, _>(end) = ended;
        self.shared.end(end);
        self
    }

    /// Carries what there is, then watches or sleeps until there is more.
    fn turn(&mut self, sleep: &mut Sleep) -> Result<(), End> {
        // Both, whatever the first says.
        if self.complete()? | self.take()? {
            self.pace.worked(&self.shared.watchers);
            return Ok(());
        }
        if self.pace.watches(&self.shared.watchers) {
            std::thread::yield_now();
            return Ok(());
        }
        if !self.ring.arm() {
            let begun_ns = now_ns();
            sleep.until_something(self.can_read(), None)?;
            self.pace.slept(now_ns() - begun_ns);
        }
        self.ring.disarm();
        if self.shared.device.is_gone() { Err(End::Gone) } else { Ok(()) }
    }

    /// Hands replies that have come to the kernel; tells whether there were any.
    fn complete(&mut self) -> Result<bool, End> {
        let mut has_some = false;
        while let Some(used) = self.ring.pop().map_err(|broken| End::Broken(broken.0))? {
            has_some = true;
            self.completed(used)?;
        }
        Ok(has_some)
    }

    /// Hands one reply to the kernel, and the slot to the next request.
    pub(super) fn completed(&mut self, used: Used) -> Result<(), End> {
        self.reply(used)?;
        self.in_flight[usize::from(used.cookie)].is_under_way = false;
        self.slots.give(used.cookie);
        self.send_own();
        self.submit_parked()
    }

    pub(super) fn reply(&self, used: Used) -> Result<(), End> {
        let InFlight { unique, len: request_len, kind, .. } = self.in_flight[usize::from(used.cookie)];
        let room = self.slots.room(used.cookie, request_len);
        let written = used.written_bytes as usize;
        let memory = &self.memory.memory;
        let header = reply_header(memory, room.offset, written).filter(|header| header.unique.get() == unique);
        if let Kind::Own(job) = kind {
            let error = header.map_or(Errno::IO.raw_os_error(), |header| -header.error.get());
            let outcome = if error == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(error)) };
            return self.answered(job, outcome);
        }
        let Some(header) = header else {
            tracing::warn!(unique, written, "the daemon's reply is none; the request fails with EIO");
            return self.fail(unique);
        };
        let body_len = header.len.get() as usize - size_of::<OutHeader>();
        let offset = room.offset + size_of::<OutHeader>();
        if !matches!(kind, Kind::Carried) && header.error.get() == 0 {
            let mut body = vec![0; body_len.min(OPEN_LEN_MAX)];
            memory.read(offset, &mut body);
            if self.opened(kind, unique, &body)? {
                return Ok(());
            }
        }
        let body = Piece { memory, offset, len_bytes: body_len };
        if let Some(reconnect) = &self.shared.reconnect {
            return self.reply_renumbered(reconnect, used.cookie, &header, body);
        }
        self.hand_over(&header, body)
    }

    /// Gives a reply to the kernel as the daemon has written it.
    pub(super) fn hand_over(&self, header: &OutHeader, body: Piece<'_>) -> Result<(), End> {
        let (unique, body_len) = (header.unique.get(), body.len_bytes);
        match self.kernel.reply(header, body) {
            // The caller is gone.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(End::Unmounted),
            Err(errno) => {
                tracing::warn!(unique, body_len, %errno, "the kernel refuses the daemon's reply; the request fails with EIO");
                self.fail(unique)
            }
        }
    }

    /// Answers with EIO; a request that got an answer already is as right.
    pub(super) fn fail(&self, unique: u64) -> Result<(), End> {
        match self.kernel.fail(unique, Errno::IO) {
            Err(Errno::NODEV) => Err(End::Unmounted),
            _ => Ok(()),
        }
    }

    /// Takes requests of the kernel; tells whether there were any.
    fn take(&mut self) -> Result<bool, End> {
        for count in 0..READS_MAX {
            if !self.take_one()? {
                return Ok(count > 0);
            }
        }
        Ok(true)
    }

    pub(super) fn take_one(&mut self) -> Result<bool, End> {
        let taken = self.slots.take();
        if taken.is_none() && !self.shared.backlog.has_room() {
            return Ok(false);
        }
        let slot = taken.unwrap_or(self.slots.spare());
        let offset = self.slots.request(slot);
        let read = self.kernel.read(Piece { memory: &self.memory.memory, offset, len_bytes: REQUEST_LEN_MAX });
        let is_sent = match read {
            Ok(len) => self.route(slot, taken.is_some(), len)?,
            // ENOENT: the caller was interrupted before we read it.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => false,
            Err(Errno::NODEV) => return Err(End::Unmounted),
            Err(errno) => return Err(End::Kernel(errno)),
        };
        if let (Some(slot), false) = (taken, is_sent) {
            self.slots.give(slot);
        }
        Ok(!matches!(read, Err(Errno::AGAIN)))
    }

    /// Sends the request of `len` bytes in `slot` where it belongs; tells whether the slot is in flight.
    fn route(&mut self, slot: u16, is_own: bool, len: usize) -> Result<bool, End> {
        let offset = self.slots.request(slot);
        let mut header = [0; size_of::<InHeader>()];
        if len < header.len() {
            return Ok(false);
        }
        self.memory.memory.read(offset, &mut header);
        let header: InHeader = zerocopy::transmute!(header);
        let copy = || {
            let mut message = vec![0; len];
            self.memory.memory.read(offset, &mut message);
            // The daemon may have changed it meanwhile.
            message[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
            message
        };
        let opcode = Opcode::from_u32(header.opcode.get());
        if opcode == Some(Opcode::Release) {
            self.note_release(header.nodeid.into());
        }
        match opcode {
            Some(Opcode::Forget | Opcode::BatchForget) => {
                let message = copy();
                if let Some(reconnect) = &self.shared.reconnect {
                    return self.forget_renumbered(reconnect, &message).map(|()| false);
                }
                self.note_forget(&message);
                self.send_priority(&message).map(|()| false)
            }
            Some(Opcode::Interrupt) => {
                let message = copy();
                if let Ok((about, _)) = InterruptIn::read_from_prefix(&message[size_of::<InHeader>()..]) {
                    if self.shared.interrupt_parked(about.unique.get()) {
                        return Ok(false);
                    }
                    if let Some(reconnect) = &self.shared.reconnect {
                        reconnect.note_interrupt(about.unique.get());
                    }
                }
                self.send_priority(&message).map(|()| false)
            }
            _ if is_own => self.submit(slot, &header, len),
            _ => {
                self.shared.backlog.put(Parked { lane: self.index, header, message: copy() });
                Ok(false)
            }
        }
    }

    /// Whether there is a place for another request.
    pub(super) fn can_read(&self) -> bool {
        self.slots.has_free() || self.shared.backlog.has_room()
    }

    pub(super) fn send_priority(&self, message: &[u8]) -> Result<(), End> {
        self.shared.priority.send(&self.shared.device, self.shared.stop(), message)
    }

    /// Sends what waits for a slot, as far as there are slots.
    pub(super) fn submit_parked(&mut self) -> Result<(), End> {
        while self.slots.has_free()
            && let Some(parked) = self.shared.backlog.take_of(self.index)
            && let Some(slot) = self.slots.take()
        {
            self.memory.memory.write(self.slots.request(slot), &parked.message);
            if !self.submit(slot, &parked.header, parked.message.len())? {
                self.slots.give(slot);
            }
        }
        Ok(())
    }

    /// Puts the kernel's request in `slot` into the ring; tells whether it is there, or was answered here.
    fn submit(&mut self, slot: u16, header: &InHeader, len: usize) -> Result<bool, End> {
        if !self.renumber(header, slot, len)? {
            return Ok(false);
        }
        self.send(slot, header, len);
        Ok(true)
    }

    pub(super) fn send(&mut self, slot: u16, header: &InHeader, len: usize) {
        let args = self.args(slot, len);
        let kind = self.shared.passthrough.kind(header, &args);
        self.add(slot, header, len, &args, kind);
    }

    /// The first arguments of the request of `len` bytes in `slot`.
    pub(super) fn args(&self, slot: u16, len: usize) -> [u8; reply_room::ARGS_LEN] {
        let mut args = [0; reply_room::ARGS_LEN];
        let known = args.len().min(len - size_of::<InHeader>());
        self.memory.memory.read(self.slots.request(slot) + size_of::<InHeader>(), &mut args[..known]);
        args
    }

    /// Puts a request into the ring, with as much room for the reply as it asks for: there are daemons that fill what they are
    /// given.
    pub(super) fn add(
        &mut self,
        slot: u16,
        header: &InHeader,
        len: usize,
        args: &[u8; reply_room::ARGS_LEN],
        kind: Kind,
    ) {
        let memory = &self.memory.memory;
        let unique = header.unique.get();
        let offset = self.slots.request(slot);
        let room = self.slots.room(slot, len);
        let room_len = reply_room::len_bytes(Opcode::from_u32(header.opcode.get()), args).min(room.len_bytes);
        let readable = [segment(memory, offset, len)];
        let writable = [segment(memory, room.offset, room_len)];
        self.in_flight[usize::from(slot)] = InFlight { unique, len, kind, is_under_way: true };
        self.ring.add(&readable, &writable, slot).expect("a slot stands for a chain that the ring has room for");
        if self.ring.needs_notify() {
            self.shared.device.notify(self.queue);
        }
    }
}

/// The header of a reply of which the device says to have written so many bytes; nothing where it cannot be one.
pub(super) fn reply_header(memory: &DmaMemory, offset: usize, written: usize) -> Option<OutHeader> {
    let mut header = [0; size_of::<OutHeader>()];
    if written < header.len() {
        return None;
    }
    memory.read(offset, &mut header);
    let header: OutHeader = zerocopy::transmute!(header);
    let is_one = (size_of::<OutHeader>()..=written).contains(&(header.len.get() as usize))
        && (-ERRNO_MAX..=0).contains(&header.error.get());
    is_one.then_some(header)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use transom_guest::dma::WhenFull;

    use super::*;

    /// What of a reply is believed whose header says `len` and `error`, where the device says to have written `written` bytes.
    fn read(len: u32, error: i32, written: usize) -> Option<OutHeader> {
        let arena = Arc::new(Arena::new(1).unwrap());
        let (_pool, memory) = arena.pool_and_rest(4096, WhenFull::Fail);
        let header = OutHeader { len: len.into(), error: error.into(), unique: 2.into() };
        memory.write(16, header.as_bytes());
        reply_header(&memory, 16, written)
    }

    #[test]
    fn a_reply_longer_than_what_was_written_is_none_nor_is_one_shorter_than_its_header() {
        assert!(read(16, 0, 16).is_some() && read(24, 0, 24).is_some());
        for (len, written) in [(25, 24), (u32::MAX, 4096), (15, 24), (0, 24), (16, 15), (16, 0)] {
            assert!(read(len, 0, written).is_none(), "{len} {written}");
        }
    }

    #[test]
    fn an_error_that_no_system_call_gives_is_none() {
        assert!(read(16, -2, 16).is_some() && read(16, -ERRNO_MAX, 16).is_some());
        for error in [1, -512, i32::MIN, i32::MAX] {
            assert!(read(16, error, 16).is_none(), "{error}");
        }
    }
}
