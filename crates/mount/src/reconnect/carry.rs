//! What a thread of the mount does to requests and replies that it carries, where the mount may reconnect.

use rustix::io::Errno;
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::{forget::BatchForgetIn, write::WriteIn},
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::{
    Reconnect, Tables,
    inodes::Forgotten,
    reply::{Answer, forget_bytes},
    request::{Request, Verdict},
};
use crate::{End, backlog::Parked, kernel::Piece, lane::Lane};

/// Of a slot, more is not kept for its next request than this. Most requests are shorter; a few hold a name or an attribute.
const KEPT_LEN_USUAL: usize = 4096;
/// Of a WRITE, what stands before the data, which is not kept twice.
const WRITE_HEAD_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

impl Lane {
    /// Where the mount may reconnect, makes the kernel's request of `len` bytes in `slot` one for the present daemon, and keeps what it
    /// was; tells whether it is to be sent, or is answered.
    ///
    /// `header` is its own; what the daemon makes of those bytes is not looked at again, and of the rest nothing is twice.
    pub(crate) fn renumber(&mut self, header: &InHeader, slot: u16, len: usize) -> Result<bool, End> {
        let Some(reconnect) = &self.shared.reconnect else { return Ok(true) };
        let is_write = header.opcode.get() == Opcode::Write as u32;
        let kept_len = if is_write { len.min(WRITE_HEAD_LEN) } else { len };
        let kept = &mut self.kept[usize::from(slot)];
        if kept.capacity() > KEPT_LEN_USUAL && kept_len <= KEPT_LEN_USUAL {
            *kept = Vec::new();
        }
        let offset = self.slots.request(slot);
        let memory = &self.memory.memory;
        kept.resize(kept_len, 0);
        memory.read(offset, kept);
        kept[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        let mut message = kept.clone();
        let verdict = reconnect.tables.lock().renumber(&mut message);
        match verdict {
            Verdict::Send => {
                memory.write(offset, &message);
                Ok(true)
            }
            Verdict::Answer(outcome) => {
                let error = outcome.map_or_else(|errno| -errno.raw_os_error(), |()| 0);
                let header = OutHeader { len: 16.into(), error: error.into(), unique: header.unique };
                self.written(header.unique.get(), self.kernel.write(&header, &[]))?;
                Ok(false)
            }
        }
    }

    /// Hands a reply of the daemon to the kernel, with the kernel's numbers.
    pub(crate) fn reply_renumbered(
        &self,
        reconnect: &Reconnect,
        slot: u16,
        header: &OutHeader,
        body: Piece<'_>,
    ) -> Result<(), End> {
        let Some(request) = Request::new(&self.kept[usize::from(slot)]) else { return self.fail(header.unique.get()) };
        reconnect.forget_interrupt(header.unique.get());
        if header.error.get() != 0 {
            let errno = Errno::from_raw_os_error(-header.error.get());
            let errno = reconnect.tables.lock().refused(&request, errno);
            return self.written(header.unique.get(), self.kernel.fail(header.unique.get(), errno));
        }
        if !Tables::is_noted(request.opcode) {
            return self.hand_over(header, body).map(drop);
        }
        let mut bytes = Vec::new();
        if Tables::is_read(request.opcode) {
            bytes.resize(body.len_bytes, 0);
            body.memory.read(body.offset, &mut bytes);
        }
        let answer = reconnect.tables.lock().answered(&request, bytes);
        match answer {
            Answer::AsItIs => self.hand_over(header, body).map(drop),
            Answer::Body(bytes) => {
                let taken = self.kernel.write(header, &bytes);
                self.written(header.unique.get(), taken)?;
                if taken.is_err() {
                    let forgotten = reconnect.tables.lock().untaken(&request, &bytes);
                    self.send_forgets(&forgotten)?;
                }
                Ok(())
            }
            Answer::Broken => {
                tracing::warn!(opcode = ?request.opcode, "the daemon's reply is none; the request fails with EIO");
                self.fail(header.unique.get())
            }
        }
    }

    /// The kernel has been given an answer, and may not have taken it for one.
    fn written(&self, unique: u64, written: Result<(), Errno>) -> Result<(), End> {
        match written {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(End::Unmounted),
            Err(_) => self.fail(unique),
        }
    }

    /// The kernel forgets what `message` says.
    pub(crate) fn forget_renumbered(&self, reconnect: &Reconnect, message: &[u8]) -> Result<(), End> {
        let forgotten = reconnect.tables.lock().forgotten(message);
        self.send_forgets(&forgotten)
    }

    pub(super) fn send_forgets(&self, forgotten: &[Forgotten]) -> Result<(), End> {
        if forgotten.is_empty() { Ok(()) } else { self.send_priority(&batch(forgotten)) }
    }

    /// What the daemon has not answered, as the kernel has asked for it.
    pub(super) fn unanswered(&self) -> Vec<Parked> {
        let slots = self.in_flight.iter().zip(&self.kept).zip(0..);
        slots
            .filter(|((in_flight, _), _)| in_flight.is_under_way)
            .filter_map(|((in_flight, kept), slot)| {
                let header = Request::new(kept)?.header;
                let mut message = vec![0; in_flight.len];
                self.memory.memory.read(self.slots.request(slot), &mut message);
                // What the daemon could have changed is not what the kernel has asked for; the data it can write anyway.
                message[..kept.len()].copy_from_slice(kept);
                Some(Parked { lane: self.index, header, message })
            })
            .collect()
    }
}

/// One message for the daemon.
fn batch(forgotten: &[Forgotten]) -> Vec<u8> {
    let list = forget_bytes(forgotten);
    let counted = BatchForgetIn { count: (forgotten.len() as u32).into(), dummy: 0.into() };
    let len = size_of::<InHeader>() + size_of::<BatchForgetIn>() + list.len();
    let header =
        InHeader { len: (len as u32).into(), opcode: (Opcode::BatchForget as u32).into(), ..InHeader::new_zeroed() };
    [header.as_bytes(), counted.as_bytes(), &list].concat()
}
