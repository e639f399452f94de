//! The way back: what the daemon has written into a slot goes to the kernel, or the request fails with EIO.

use rustix::io::Errno;
use transom_guest::{dma::DmaMemory, ring::Used};
use transom_wire::header::OutHeader;

use super::{
    End,
    kernel::Piece,
    lane::{InFlight, Lane},
    passthrough::Kind,
};

/// The greatest errno of a reply: from 512 on they are the kernel's own (`ERESTARTSYS` and others).
const ERRNO_MAX: i32 = 511;
/// Of the answer to an open, more than there is.
const OPEN_LEN_MAX: usize = 256;

impl Lane {
    /// Hands replies that have come to the kernel; tells whether there were any.
    pub(super) fn complete(&mut self) -> Result<bool, End> {
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
        if header.is_none_or(|header| header.error.get() != 0) {
            self.shared.passthrough.was_not_opened(kind);
        }
        let Some(header) = header else {
            tracing::warn!(unique, written, "the daemon's reply is none; the request fails with EIO");
            return self.fail(unique);
        };
        let body_len = header.len.get() as usize - size_of::<OutHeader>();
        let offset = room.offset + size_of::<OutHeader>();
        if matches!(kind, Kind::Open(..) | Kind::Create(_)) && header.error.get() == 0 {
            let mut body = vec![0; body_len.min(OPEN_LEN_MAX)];
            memory.read(offset, &mut body);
            if self.opened(kind, unique, &body)? {
                return Ok(());
            }
            self.shared.passthrough.was_not_opened(kind);
        }
        let body = Piece { memory, offset, len_bytes: body_len };
        if let Some(reconnect) = &self.shared.reconnect {
            return self.reply_renumbered(reconnect, used.cookie, &header, body);
        }
        if matches!(kind, Kind::Carried) || header.error.get() != 0 {
            return self.hand_over(&header, body).map(drop);
        }
        self.shared.passthrough.tell(kind, &body);
        if !self.hand_over(&header, body)? {
            self.shared.passthrough.was_not_told(kind, &body);
        }
        Ok(())
    }

    /// Hands a reply to the kernel as it lies in memory. Returns whether the kernel took it.
    pub(super) fn hand_over(&self, header: &OutHeader, body: Piece<'_>) -> Result<bool, End> {
        let (unique, body_len) = (header.unique.get(), body.len_bytes);
        match self.kernel.reply(header, body) {
            Ok(()) => Ok(true),
            // The caller is gone.
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NODEV) => Err(End::Unmounted),
            Err(errno) => {
                tracing::warn!(unique, body_len, %errno, "the kernel refuses the daemon's reply; the request fails with EIO");
                self.fail(unique).map(|()| false)
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
    use zerocopy::IntoBytes as _;

    use super::*;
    use transom_user::arena::Arena;

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
