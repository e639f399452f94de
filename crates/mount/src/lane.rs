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
use transom_guest::{dma::DmaMemory, ring::Ring, transport::Transport as _};
use transom_pace::Pace;
use transom_wire::{Opcode, header::InHeader, operation::Account, ops::interrupt::InterruptIn};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    End,
    backlog::Parked,
    company::{self, Company},
    kernel::{Kernel, Piece},
    passthrough::{Kind, rights},
    reply_room,
    shared::Shared,
    single::Single,
    sleep::Sleep,
    slots::{REQUEST_LEN_MAX, Slots, segment},
};
use transom_user::{arena::Arena, platform::now_ns};

/// Requests that are read before replies are looked for again.
const READS_MAX: usize = 8;

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
    pub(super) company: Company,
    pub(super) single: Single,
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
    pub(super) unique: u64,
    pub(super) len: usize,
    pub(super) kind: Kind,
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
        let has_replied = self.complete()?;
        let is_callers_turn = has_replied && self.ring.in_flight() == 0 && self.single.is_so();
        let has_some = has_replied | (!is_callers_turn && self.take()?);
        if has_some {
            self.worked();
        }
        if has_some && !is_callers_turn {
            return Ok(());
        }
        if self.pace.watches(now_ns()) {
            self.yield_now();
            return Ok(());
        }
        if !self.ring.arm() {
            sleep.until_something(self.can_read(), None)?;
            self.pace.slept();
        }
        self.ring.disarm();
        if self.shared.device.is_gone() { Err(End::Gone) } else { Ok(()) }
    }

    /// There was something to do.
    pub(super) fn worked(&mut self) {
        self.pace.worked(now_ns());
        self.company.worked();
    }

    /// Lets others run who need this processor.
    pub(super) fn yield_now(&mut self) {
        let begun_ns = now_ns();
        std::thread::yield_now();
        let now_ns = now_ns();
        self.pace.yielded(now_ns - begun_ns, now_ns);
        if self.company.yielded(now_ns, company::switches) {
            company::go_elsewhere();
        }
    }

    /// Takes requests of the kernel; tells whether there were any.
    fn take(&mut self) -> Result<bool, End> {
        let before = self.ring.in_flight();
        let mut has_some = false;
        for _ in 0..READS_MAX {
            if !self.take_one()? {
                break;
            }
            // What nobody answers, as FORGET, is not watched for.
            let is_first = !has_some && self.ring.in_flight() == before + 1;
            has_some = true;
            if is_first && before == 0 && self.single.watch(|| self.ring.has_used()) {
                return Ok(true);
            }
        }
        self.single.came(self.ring.in_flight().saturating_sub(before));
        Ok(has_some)
    }

    pub(super) fn take_one(&mut self) -> Result<bool, End> {
        let taken = self.slots.take();
        if taken.is_none() && !self.shared.backlog.has_room() {
            return Ok(false);
        }
        let slot = taken.unwrap_or(self.slots.spare());
        let offset = self.slots.request(slot);
        self.shared.passthrough.begin_reading(self.index);
        let read = self.kernel.read(Piece { memory: &self.memory.memory, offset, len_bytes: REQUEST_LEN_MAX });
        let is_sent = match read {
            Ok(len) => self.route(slot, taken.is_some(), len),
            // ENOENT: the caller was interrupted before we read it.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(false),
            Err(errno) => Err(End::of_reading(errno)),
        };
        self.shared.passthrough.end_reading(self.index);
        let is_sent = is_sent?;
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
            self.note_release(header.nodeid.into(), slot, len);
        }
        match opcode.map_or(Account::None, |opcode| opcode.row().account) {
            Account::Forgets => {
                let message = copy();
                if let Some(reconnect) = &self.shared.reconnect {
                    return self.forget_renumbered(reconnect, &message).map(|()| false);
                }
                self.note_forget(&message);
                self.send_priority(&message).map(|()| false)
            }
            Account::Interrupts => {
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
        let args = self.args(slot, len);
        if let Some(errno) = self.shared.passthrough.refuses(self.index, header, &args) {
            return match self.kernel.fail(header.unique.get(), errno) {
                Err(Errno::NODEV) => Err(End::Unmounted),
                // Where it fails otherwise, nobody waits any more.
                _ => Ok(false),
            };
        }
        self.send_with(slot, header, len, &args);
        Ok(true)
    }

    pub(super) fn send(&mut self, slot: u16, header: &InHeader, len: usize) {
        let args = self.args(slot, len);
        self.send_with(slot, header, len, &args);
    }

    fn send_with(&mut self, slot: u16, header: &InHeader, len: usize, args: &[u8; reply_room::ARGS_LEN]) {
        let kind = self.shared.passthrough.kind(header, args);
        self.add(slot, header, len, args, kind);
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
