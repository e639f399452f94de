//! Coherence as one worker uses it: the moments of requests, and what their replies tell the kernel.

use std::{
    mem::offset_of,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use transom_versions::Moment;
use transom_wire::{
    NodeId, Opcode,
    attr::{Attr, EntryOut},
    header::{InHeader, OutHeader},
    linux::RENAME_EXCHANGE,
    operation::Effect,
    ops::rename::Rename2In,
};

use super::{
    Coherence,
    own::{RaisedSlots, cut_trailer},
};
use crate::{
    fuse_device::SharedBuffer,
    reply_body::{entries, read, read_name, write},
    reply_room::ARGS_LEN,
    request::{DirEntryName, Request},
};

/// How long the kernel may use a name without asking, in seconds, if nobody tells it of changes.
const NAME_VALID_S: u64 = 1;
/// The same if somebody does. It bounds what is said in [`names`](super::names).
const FOLLOWED_VALID_S: u64 = 30;

/// Coherence as one worker uses it.
pub(crate) struct CoherenceStage {
    shared: Arc<Coherence>,
    /// By slot: the request in it.
    in_flight: Vec<InFlight>,
    /// The inodes in the reply that is being written, and whether a reference to each was counted.
    noted: Vec<(NodeId, bool)>,
    /// The names that the kernel caches with it.
    noted_names: Vec<DirEntryName>,
    /// The slots that the request has raised.
    raised: RaisedSlots,
}

#[derive(Debug, Clone, Default)]
struct InFlight {
    opcode: Option<Opcode>,
    nodeid: NodeId,
    /// Before it was sent.
    moment: Moment,
    /// The names that the kernel caches if it succeeds, but for those in the reply.
    names: Vec<DirEntryName>,
    /// The name that the kernel has not cached any more if it succeeds.
    removed: Option<DirEntryName>,
    /// The inodes that it changes so that the kernel's caches show it.
    changes: [Option<NodeId>; 2],
}

impl CoherenceStage {
    /// Creates the stage of a worker with `slots` slots.
    pub(crate) fn new(shared: Arc<Coherence>, slots: usize) -> Self {
        let in_flight = vec![InFlight::default(); slots];
        Self { shared, in_flight, noted: Vec::new(), noted_names: Vec::new(), raised: RaisedSlots::new() }
    }

    /// Notes the request in `slot`, which is about to be sent and begins with `args`. `message` returns a copy of all
    /// of it. To be followed by [`Self::note_failed`] or [`Self::note_written`].
    pub(crate) fn note_request(
        &mut self,
        slot: u16,
        header: &InHeader,
        args: &[u8; ARGS_LEN],
        message: impl FnOnce() -> Vec<u8>,
    ) {
        let opcode = Opcode::from_u32(header.opcode.get());
        let (names, removed) = match opcode.map_or(Effect::None, |opcode| opcode.row().effect) {
            Effect::LooksUp | Effect::Makes(_) | Effect::MakesAndOpens | Effect::Renames | Effect::Removes => {
                Request::new(&message()).map(|request| affected_names(&request)).unwrap_or_default()
            }
            _ => Default::default(),
        };
        let changes = self.shared.shown_changes(&Request { header: *header, opcode, args });
        changes.iter().flatten().for_each(|nodeid| self.shared.begin_change(*nodeid));
        self.in_flight[usize::from(slot)] =
            InFlight { opcode, nodeid: header.nodeid.into(), moment: self.shared.table.now(), names, removed, changes };
    }

    /// Notes that the request in `slot` has failed.
    pub(crate) fn note_failed(&mut self, slot: u16) {
        self.raised.clear();
        self.end_changes(slot);
    }

    /// Cuts the trailer off a reply without an error, if the daemon sends any.
    pub(crate) fn cut_trailer(&mut self, slot: u16, header: &mut OutHeader, body: &mut SharedBuffer<'_>) {
        self.raised.clear();
        let opcode = self.in_flight[usize::from(slot)].opcode;
        if let Some(opcode) = opcode.filter(|_| self.shared.has_trailers.load(Ordering::Relaxed)) {
            cut_trailer(opcode.row(), header, body, &mut self.raised);
        }
    }

    /// Notes a whole FORGET or BATCH_FORGET.
    pub(crate) fn note_forget(&self, message: &[u8]) {
        self.shared.note_forget(message);
    }

    /// Joins what the request has changed, counts the references in `body`, a reply without an error that the kernel is
    /// about to get, and limits the time for which names are valid. To be followed by [`Self::note_written`].
    pub(crate) fn adjust_reply(&mut self, slot: u16, body: &SharedBuffer<'_>) {
        self.noted.clear();
        self.noted_names.clear();
        self.end_changes(slot);
        let in_flight = &mut self.in_flight[usize::from(slot)];
        let (nodeid, moment, names) = (in_flight.nodeid, in_flight.moment, std::mem::take(&mut in_flight.names));
        if let Some(removed) = in_flight.removed.take() {
            // Before the kernel has the reply, after which it may cache the name anew.
            self.shared.drop_name(removed.parent, &removed.name);
        }
        let Some(row) = in_flight.opcode.map(Opcode::row) else { return };
        if row.effect == Effect::Lists {
            let follows = self.shared.follows_names(nodeid);
            for offset in entries(body) {
                // Without an inode, the kernel caches nothing of an entry.
                let is_cached = follows && read(body, offset + offset_of!(EntryOut, nodeid)) != Some([0; 8]);
                let name = read_name(body, offset).filter(|_| is_cached);
                let name = name.map(|name| DirEntryName { parent: nodeid, name: name.into() });
                self.adjust_entry(body, offset, moment, name);
            }
            self.noted.push((nodeid, false));
        } else if row.effect == Effect::Renames {
            // What the kernel has cached under one name it now has under the other, for as long.
            if self.shared.expires_names() {
                self.noted_names = names;
            }
            self.noted.push((nodeid, false));
        } else if let Some(at) = row.reply_nodeid_at {
            let name = names.into_iter().next().filter(|name| self.shared.follows_names(name.parent));
            self.adjust_entry(body, at, moment, name);
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
        let changes = std::mem::take(&mut self.in_flight[usize::from(slot)].changes);
        if !is_taken {
            changes.into_iter().flatten().for_each(|nodeid| self.shared.disown(nodeid));
        }
        let moment = self.in_flight[usize::from(slot)].moment;
        if is_taken {
            // Those of a listing have one directory.
            for chunk in self.noted_names.chunk_by(|one, other| one.parent == other.parent) {
                let names = chunk.iter().map(|name| name.name.clone());
                self.shared.note_names(chunk[0].parent, names, moment);
            }
        }
        for (nodeid, is_counted) in self.noted.drain(..) {
            if is_taken {
                self.shared.note_fetched(nodeid, moment);
            } else if is_counted {
                self.shared.forget(nodeid, 1);
            }
        }
    }

    /// Notes that the changes of the request in `slot` are done, with the slots in [`Self::raised`]. Before the kernel
    /// has the reply, so that the changes of one caller are joined in their order.
    fn end_changes(&self, slot: u16) {
        let InFlight { moment, changes, .. } = &self.in_flight[usize::from(slot)];
        for nodeid in changes.iter().flatten() {
            self.shared.known.end_change(*nodeid, *moment, &self.raised, Instant::now());
        }
    }

    /// Adjusts the entry at `offset`. `name` is noted if the kernel may use it without asking; without it, the name
    /// expires soon.
    fn adjust_entry(&mut self, body: &SharedBuffer<'_>, offset: usize, moment: Moment, name: Option<DirEntryName>) {
        let field = |at: usize| read(body, offset + at).map(u64::from_le_bytes);
        let ino = field(offset_of!(EntryOut, attr) + offset_of!(Attr, ino));
        let (Some(nodeid), Some(ino)) = (field(offset_of!(EntryOut, nodeid)), ino) else { return };
        let valid_s = field(offset_of!(EntryOut, entry_valid)).unwrap_or(0);
        let name = name.filter(|_| valid_s > NAME_VALID_S);
        let valid_max_s = if name.is_some() { FOLLOWED_VALID_S } else { NAME_VALID_S };
        if valid_s >= valid_max_s {
            write(body, offset + offset_of!(EntryOut, entry_valid), &valid_max_s.to_le_bytes());
            write(body, offset + offset_of!(EntryOut, entry_valid_nsec), &[0; 4]);
        }
        self.noted_names.extend(name);
        if nodeid != 0 {
            self.shared.known.add(NodeId(nodeid), self.shared.table.slot(ino), moment);
            self.noted.push((NodeId(nodeid), true));
        }
    }
}

/// Returns the names that the kernel caches if `request` succeeds, and the one that it then has not cached any more.
fn affected_names(request: &Request<'_>) -> (Vec<DirEntryName>, Option<DirEntryName>) {
    let exchanges =
        request.opcode == Some(Opcode::Rename2) && request.word(offset_of!(Rename2In, flags)) & RENAME_EXCHANGE != 0;
    match request.rename() {
        Some((from, to)) if exchanges => (vec![from, to], None),
        Some((from, to)) => (vec![to], Some(from)),
        None if request.effect() == Effect::Removes => (Vec::new(), request.entry_name()),
        None => (request.entry_name().into_iter().collect(), None),
    }
}
