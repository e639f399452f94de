//! The reconnect stage of one worker: exchanges the kernel's numbers of inodes and handles for the daemon's in
//! requests, and back in replies, and keeps each request until it is answered.
//!
//! Messages for the daemon that follow from this, such as a BATCH_FORGET, are returned for the worker to send.

use std::sync::Arc;

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
    reply::{RenumberedReply, forget_bytes},
    request::RenumberVerdict,
};
use crate::{
    MountEnd, backlog::ParkedRequest, fuse_device::SharedBuffer, reply_out::ReplyWriter, request::Request,
    request_queue::RequestQueue,
};

/// A buffer that has grown beyond this is freed by the next request that is shorter. Few requests are longer; they have
/// a name or an extended attribute.
const KEPT_LEN_USUAL: usize = 4096;
/// The part of a WRITE before its data. The data is not kept twice.
const WRITE_HEAD_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Reconnecting as one worker uses it.
pub(crate) struct ReconnectStage {
    shared: Arc<Reconnect>,
    /// By slot: the request as the kernel sent it, without the data of a WRITE.
    kept: Vec<Vec<u8>>,
    /// The request that is being renumbered.
    scratch: Vec<u8>,
}

impl ReconnectStage {
    /// Creates the stage of a worker with `slots` slots.
    pub(crate) fn new(shared: Arc<Reconnect>, slots: usize) -> Self {
        Self { shared, kept: vec![Vec::new(); slots], scratch: Vec::new() }
    }

    /// Keeps the kernel's request of `len_bytes` in `slot`, and puts the daemon's numbers into it.
    ///
    /// Returns whether to send it, or what to answer it with. `header` was read before; those bytes of the slot are not
    /// read again, and the rest is read once.
    pub(crate) fn renumber_request(
        &mut self,
        queue: &RequestQueue,
        slot: u16,
        header: &InHeader,
        len_bytes: usize,
    ) -> RenumberVerdict {
        let is_write = header.opcode.get() == Opcode::Write as u32;
        let kept_len = if is_write { len_bytes.min(WRITE_HEAD_LEN) } else { len_bytes };
        let kept = &mut self.kept[usize::from(slot)];
        if kept.capacity() > KEPT_LEN_USUAL && kept_len <= KEPT_LEN_USUAL {
            *kept = Vec::new();
        }
        kept.resize(kept_len, 0);
        queue.read_request(slot, kept);
        kept[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        if self.scratch.capacity() > KEPT_LEN_USUAL && kept_len <= KEPT_LEN_USUAL {
            self.scratch = Vec::new();
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(kept);
        let verdict = self.shared.tables.lock().renumber(&mut self.scratch);
        if verdict == RenumberVerdict::Send {
            queue.write_request(slot, &self.scratch);
        }
        verdict
    }

    /// Notes that the daemon is told to interrupt the request `unique`.
    pub(crate) fn note_interrupt(&self, unique: u64) {
        self.shared.note_interrupt(unique);
    }

    /// Notes what the kernel forgets, and returns the message that tells the daemon, if there is anything to tell.
    pub(crate) fn forget(&self, message: &[u8]) -> Option<Vec<u8>> {
        let forgotten = self.shared.tables.lock().forgotten(message);
        batch_forget(&forgotten)
    }

    /// Writes the daemon's reply to the request in `slot` to the kernel, with the kernel's numbers.
    ///
    /// Returns a message for the daemon if the kernel did not take the reply.
    ///
    /// # Errors
    /// The mount has ended.
    pub(crate) fn reply(
        &self,
        replies: &ReplyWriter,
        slot: u16,
        header: &OutHeader,
        body: SharedBuffer<'_>,
    ) -> Result<Option<Vec<u8>>, MountEnd> {
        let unique = header.unique.get();
        let Some(request) = Request::new(&self.kept[usize::from(slot)]) else {
            return replies.fail(unique).map(|()| None);
        };
        self.shared.forget_interrupt(unique);
        if header.error.get() != 0 {
            let errno = Errno::from_raw_os_error(-header.error.get());
            let errno = self.shared.tables.lock().refused(&request, errno);
            return replies.finish(unique, Err(errno)).map(|()| None);
        }
        if !Tables::is_noted(request.opcode) {
            return replies.write(header, body).map(|_| None);
        }
        let mut bytes = Vec::new();
        if Tables::is_read(request.opcode) {
            bytes.resize(body.len_bytes, 0);
            body.memory.read(body.offset, &mut bytes);
        }
        let answer = self.shared.tables.lock().answered(&request, bytes);
        match answer {
            RenumberedReply::AsItIs => replies.write(header, body).map(|_| None),
            RenumberedReply::Body(bytes) => {
                if replies.write_bytes(header, &bytes)? {
                    return Ok(None);
                }
                let forgotten = self.shared.tables.lock().untaken(&request, &bytes);
                Ok(batch_forget(&forgotten))
            }
            RenumberedReply::Broken => {
                let opcode = request.opcode;
                tracing::warn!(?opcode, "the daemon sent an invalid reply; the request fails with EIO");
                replies.fail(unique).map(|()| None)
            }
        }
    }

    /// Returns the requests that the daemon has not answered, as the kernel sent them. `worker` is the index of this
    /// worker.
    pub(crate) fn unanswered(&self, queue: &RequestQueue, worker: usize) -> Vec<ParkedRequest> {
        queue
            .pending()
            .filter_map(|(slot, in_flight)| {
                let kept = &self.kept[usize::from(slot)];
                let header = Request::new(kept)?.header;
                let mut message = vec![0; in_flight.len_bytes];
                queue.read_request(slot, &mut message);
                // What the daemon could have changed is replaced. The data of a WRITE is not: the daemon writes it
                // anyway.
                message[..kept.len()].copy_from_slice(kept);
                Some(ParkedRequest { worker, header, message })
            })
            .collect()
    }
}

/// Returns a BATCH_FORGET of `forgotten`, or `None` if there is nothing to forget.
pub(super) fn batch_forget(forgotten: &[Forgotten]) -> Option<Vec<u8>> {
    if forgotten.is_empty() {
        return None;
    }
    let list = forget_bytes(forgotten);
    let args = BatchForgetIn { count: (forgotten.len() as u32).into(), dummy: 0.into() };
    let len = size_of::<InHeader>() + size_of::<BatchForgetIn>() + list.len();
    let header =
        InHeader { len: (len as u32).into(), opcode: (Opcode::BatchForget as u32).into(), ..InHeader::new_zeroed() };
    Some([header.as_bytes(), args.as_bytes(), &list].concat())
}

#[cfg(test)]
#[path = "stage_test.rs"]
mod tests;
