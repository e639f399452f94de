//! Adjusts attributes in replies on their way to the kernel, as [`Attributes`](super::attributes::Attributes) decides.

use std::mem::offset_of;

use transom_wire::{
    NodeId,
    attr::{Attr, AttrOut, EntryOut},
    ops::statx::{Statx, StatxOut},
};

use super::{
    Passthrough,
    attributes::{ReplyRules, SET_ID},
    stage::RequestKind,
};
use crate::{
    fuse_device::SharedBuffer,
    reply_body::{entries, read, write},
};

/// Where attributes lie in a reply, as offsets from the start of its body.
#[derive(Debug, Clone, Copy)]
struct Layout {
    valid: usize,
    valid_nsec: usize,
    /// The low 16 bits of the mode. The others are zero.
    mode: usize,
}

const ATTR: Layout = Layout {
    valid: offset_of!(AttrOut, attr_valid),
    valid_nsec: offset_of!(AttrOut, attr_valid_nsec),
    mode: offset_of!(AttrOut, attr) + offset_of!(Attr, mode),
};
const ENTRY: Layout = Layout {
    valid: offset_of!(EntryOut, attr_valid),
    valid_nsec: offset_of!(EntryOut, attr_valid_nsec),
    mode: offset_of!(EntryOut, attr) + offset_of!(Attr, mode),
};
const STATX: Layout = Layout {
    valid: offset_of!(StatxOut, attr_valid),
    valid_nsec: offset_of!(StatxOut, attr_valid_nsec),
    mode: offset_of!(StatxOut, stat) + offset_of!(Statx, mode),
};

impl Passthrough {
    /// Changes the attributes in the reply `body` to a request of `kind`, which the kernel is about to get, where they
    /// lie.
    pub(super) fn adjust_attributes(&self, kind: RequestKind, body: &SharedBuffer<'_>) {
        match kind {
            RequestKind::Attr(nodeid) => self.adjust_at(nodeid, body, 0, ATTR, false),
            RequestKind::Statx(nodeid) => self.adjust_at(nodeid, body, 0, STATX, false),
            RequestKind::Entry => self.adjust_entry(body, 0),
            RequestKind::Entries => entries(body).for_each(|offset| self.adjust_entry(body, offset)),
            RequestKind::Forwarded | RequestKind::Open(..) | RequestKind::Create(_) | RequestKind::Mapping(_) => {}
        }
    }

    /// Undoes the references that [`Self::adjust_attributes`] counted: the kernel did not take the reply.
    pub(super) fn note_rejected_reply(&self, kind: RequestKind, body: &SharedBuffer<'_>) {
        let forget = |offset| {
            if let Some(nodeid) = regular_file(body, offset) {
                self.attributes.lock().forget(nodeid, 1);
            }
        };
        match kind {
            RequestKind::Entry => forget(0),
            RequestKind::Entries => entries(body).for_each(forget),
            _ => {}
        }
    }

    /// As [`Self::adjust_attributes`], for the entry in a reply to CREATE.
    pub(super) fn adjust_created(&self, entry: &mut EntryOut) {
        let rules = self.attributes.lock().note_reply(entry.nodeid.into(), entry.attr.mode.get(), true);
        if rules.expires_at_once {
            (entry.attr_valid, entry.attr_valid_nsec) = (0.into(), 0.into());
        }
        if rules.hides_set_id {
            entry.attr.mode = (entry.attr.mode.get() & !SET_ID).into();
        }
    }

    fn adjust_entry(&self, body: &SharedBuffer<'_>, offset: usize) {
        if let Some(nodeid) = regular_file(body, offset) {
            self.adjust_at(nodeid, body, offset, ENTRY, true);
        }
    }

    fn adjust_at(&self, nodeid: NodeId, body: &SharedBuffer<'_>, offset: usize, layout: Layout, is_reference: bool) {
        let Some(mode) = read(body, offset + layout.mode).map(u16::from_le_bytes).map(u32::from) else { return };
        if mode & libc::S_IFMT != libc::S_IFREG {
            return;
        }
        let ReplyRules { expires_at_once, hides_set_id } =
            self.attributes.lock().note_reply(nodeid, mode, is_reference);
        if expires_at_once {
            write(body, offset + layout.valid, &[0; 8]);
            write(body, offset + layout.valid_nsec, &[0; 4]);
        }
        if hides_set_id {
            write(body, offset + layout.mode, &((mode & !SET_ID) as u16).to_le_bytes());
        }
    }
}

/// Returns the inode of the entry at `offset` if it is a regular file.
fn regular_file(body: &SharedBuffer<'_>, offset: usize) -> Option<NodeId> {
    let nodeid = u64::from_le_bytes(read(body, offset + offset_of!(EntryOut, nodeid))?);
    let mode = u32::from(u16::from_le_bytes(read(body, offset + ENTRY.mode)?));
    (nodeid != 0 && mode & libc::S_IFMT == libc::S_IFREG).then_some(NodeId(nodeid))
}
