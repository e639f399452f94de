//! The first message: INIT goes to the daemon and back on the thread that mounts, before any other runs.

use std::time::Duration;

use rustix::io::Errno;
use transom_guest::ring::Used;
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
};
use zerocopy::FromBytes as _;

use super::{End, answers::reply_header, init, kernel::Piece, lane::Lane, sleep::Sleep, slots::REQUEST_LEN_MAX};
use transom_user::platform::now_ns;

/// Why kernel and daemon do not come together.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The mount has ended before it began.
    #[error(transparent)]
    End(#[from] End),
    /// The daemon said no.
    #[error("the daemon refuses INIT: {0}")]
    Refused(Errno),
    /// It cannot answer what a mount that reconnects has to know.
    #[error("the daemon cannot tell what it shares: {0}")]
    Unready(Errno),
    /// One of the two says something else than INIT.
    #[error("the answer to INIT is none")]
    Nonsense,
    /// It took too long.
    #[error("no answer to INIT within {0} s")]
    Silent(u64),
}

impl Lane {
    /// Sends the kernel's INIT to the daemon and the daemon's answer to the kernel. Blocks for at most `wait_max`.
    pub(super) fn negotiate(&mut self, wait_max: Duration) -> Result<(), InitError> {
        let deadline = Deadline::new(wait_max);
        let mut sleep = Sleep::new(self)?;
        let slot = self.slots.take().ok_or(InitError::Nonsense)?;
        let len = self.read_init(slot, &mut sleep, &deadline)?;
        let offset = self.slots.request(slot);
        let mut request = vec![0; len];
        self.memory.memory.read(offset, &mut request);
        let (header, body) = request.split_at_mut_checked(size_of::<InHeader>()).ok_or(InitError::Nonsense)?;
        let header = InHeader::read_from_bytes(header).map_err(|_| InitError::Nonsense)?;
        if header.opcode.get() != Opcode::Init as u32 {
            return Err(InitError::Nonsense);
        }
        let passthrough = &self.shared.passthrough;
        let offered = init::offered(body);
        let passes = passthrough.is_possible(offered);
        let own_flags = init::own_flags(offered);
        let offered = init::filter_request(body, passes);
        self.memory.memory.write(offset, &request);
        self.send(slot, &header, len);

        let used = self.await_reply(&mut sleep, &deadline)?;
        self.slots.give(slot);
        let answer = self.read_answer(used, len)?;
        let page_len = rustix::param::page_size();
        let (answer, is_agreed) = init::filter_reply(&answer, offered, passes, page_len).ok_or(InitError::Nonsense)?;
        if passes {
            self.shared.passthrough.begin(is_agreed);
        }
        self.promised(&mut sleep, &answer)?;
        let answer = init::with_flags(&answer, own_flags);
        let len = (size_of::<OutHeader>() + answer.len()) as u32;
        let reply = OutHeader { len: len.into(), error: 0.into(), unique: header.unique };
        self.kernel.write(&reply, &answer).map_err(|errno| InitError::End(End::Kernel(errno)))
    }

    fn read_init(&self, slot: u16, sleep: &mut Sleep, deadline: &Deadline) -> Result<usize, InitError> {
        let room = Piece { memory: &self.memory.memory, offset: self.slots.request(slot), len_bytes: REQUEST_LEN_MAX };
        loop {
            match self.kernel.read(room) {
                Ok(len) => return Ok(len),
                Err(Errno::AGAIN | Errno::INTR) => sleep.until_something(true, Some(deadline.at_ns))?,
                Err(errno) => return Err(InitError::End(End::Kernel(errno))),
            }
            deadline.check()?;
        }
    }

    pub(super) fn await_reply(&mut self, sleep: &mut Sleep, deadline: &Deadline) -> Result<Used, InitError> {
        loop {
            if let Some(used) = self.ring.pop().map_err(|broken| End::Broken(broken.0))? {
                return Ok(used);
            }
            deadline.check()?;
            if !self.ring.arm() {
                sleep.until_something(false, Some(deadline.at_ns))?;
            }
            self.ring.disarm();
            if self.shared.device.is_gone() {
                return Err(InitError::End(End::Gone));
            }
        }
    }

    /// What follows the header of the answer, copied.
    pub(super) fn read_answer(&self, used: Used, request_len: usize) -> Result<Vec<u8>, InitError> {
        let room = self.slots.room(used.cookie, request_len);
        let header = reply_header(&self.memory.memory, room.offset, used.written_bytes as usize);
        let header = header.ok_or(InitError::Nonsense)?;
        if header.error.get() != 0 {
            return Err(InitError::Refused(Errno::from_raw_os_error(-header.error.get())));
        }
        let mut body = vec![0; header.len.get() as usize - size_of::<OutHeader>()];
        self.memory.memory.read(room.offset + size_of::<OutHeader>(), &mut body);
        Ok(body)
    }
}

/// When an answer is late.
pub(super) struct Deadline {
    at_ns: u64,
    seconds: u64,
}

impl Deadline {
    pub(super) fn new(wait_max: Duration) -> Self {
        Self { at_ns: now_ns() + wait_max.as_nanos() as u64, seconds: wait_max.as_secs() }
    }

    fn check(&self) -> Result<(), InitError> {
        if now_ns() < self.at_ns { Ok(()) } else { Err(InitError::Silent(self.seconds)) }
    }
}
