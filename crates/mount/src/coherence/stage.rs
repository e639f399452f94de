//! Coherence as one worker uses it: the moments of requests, and what their replies tell the kernel.

use std::{mem::offset_of, sync::Arc};

use transom_versions::Moment;
use transom_wire::{
    NodeId, Opcode,
    attr::{Attr, EntryOut},
    header::InHeader,
    operation::Effect,
};

use super::Coherence;
use crate::{
    fuse_device::SharedBuffer,
    reply_body::{entries, read, write},
};

/// How long the kernel may use a name without asking, in seconds.
const NAME_VALID_S: u64 = 1;

/// Coherence as one worker uses it.
pub(crate) struct CoherenceStage {
    shared: Arc<Coherence>,
    /// By slot: the request in it.
    in_flight: Vec<Request>,
    /// The inodes in the reply that is being written, and whether a reference to each was counted.
    noted: Vec<(NodeId, bool)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Request {
    opcode: Option<Opcode>,
    nodeid: NodeId,
    /// Before it was sent.
    moment: Moment,
}

impl CoherenceStage {
    /// Creates the stage of a worker with `slots` slots.
    pub(crate) fn new(shared: Arc<Coherence>, slots: usize) -> Self {
        Self { shared, in_flight: vec![Request::default(); slots], noted: Vec::new() }
    }

    /// Notes the request in `slot`, which is about to be sent.
    pub(crate) fn note_request(&mut self, slot: u16, header: &InHeader) {
        self.in_flight[usize::from(slot)] = Request {
            opcode: Opcode::from_u32(header.opcode.get()),
            nodeid: header.nodeid.into(),
            moment: self.shared.table.now(),
        };
    }

    /// Notes a whole FORGET or BATCH_FORGET.
    pub(crate) fn note_forget(&self, message: &[u8]) {
        self.shared.note_forget(message);
    }

    /// Counts the references in `body`, a reply without an error that the kernel is about to get, and limits the time
    /// for which names are valid. To be followed by [`Self::note_written`].
    pub(crate) fn adjust_reply(&mut self, slot: u16, body: &SharedBuffer<'_>) {
        self.noted.clear();
        let Request { opcode, nodeid, moment } = self.in_flight[usize::from(slot)];
        let Some(row) = opcode.map(Opcode::row) else { return };
        if row.effect == Effect::Lists {
            entries(body).for_each(|offset| self.adjust_entry(body, offset, moment));
            self.noted.push((nodeid, false));
        } else if let Some(at) = row.reply_nodeid_at {
            self.adjust_entry(body, at, moment);
        } else {
            if nodeid == NodeId::ROOT
                && let Some(ino) = row.reply_attr_at.and_then(|at| read(body, at + offset_of!(Attr, ino)))
            {
                self.shared.known.add_root(self.shared.table.slot(u64::from_le_bytes(ino)), moment);
            }
            self.noted.push((nodeid, false));
        }
    }

    /// Notes whether the kernel took the reply that [`Self::adjust_reply`] was last called for.
    pub(crate) fn note_written(&mut self, slot: u16, is_taken: bool) {
        let moment = self.in_flight[usize::from(slot)].moment;
        for (nodeid, is_counted) in self.noted.drain(..) {
            if is_taken {
                self.shared.note_fetched(nodeid, moment);
            } else if is_counted {
                self.shared.known.forget(nodeid, 1);
            }
        }
    }

    fn adjust_entry(&mut self, body: &SharedBuffer<'_>, offset: usize, moment: Moment) {
        let field = |at: usize| read(body, offset + at).map(u64::from_le_bytes);
        let ino = field(offset_of!(EntryOut, attr) + offset_of!(Attr, ino));
        let (Some(nodeid), Some(ino)) = (field(offset_of!(EntryOut, nodeid)), ino) else { return };
        if field(offset_of!(EntryOut, entry_valid)).is_some_and(|valid_s| valid_s >= NAME_VALID_S) {
            write(body, offset + offset_of!(EntryOut, entry_valid), &NAME_VALID_S.to_le_bytes());
            write(body, offset + offset_of!(EntryOut, entry_valid_nsec), &[0; 4]);
        }
        if nodeid != 0 {
            self.shared.known.add(NodeId(nodeid), self.shared.table.slot(ino), moment);
            self.noted.push((NodeId(nodeid), true));
        }
    }
}
