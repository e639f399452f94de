//! Replies with attributes on their way to the kernel: [`Attributes`](super::attributes) decides how each is told.

use std::mem::offset_of;

use transom_wire::{
    NodeId,
    attr::{Attr, AttrOut, EntryOut},
    dirent::{DirentPlus, padded_len},
    ops::statx::{Statx, StatxOut},
};
use zerocopy::FromBytes as _;

use super::{
    Passthrough,
    attributes::{SET_ID, Telling},
    carry::Kind,
};
use crate::kernel::Piece;

/// Where attributes lie in a reply, from its body's start.
#[derive(Debug, Clone, Copy)]
struct Layout {
    valid: usize,
    valid_nsec: usize,
    /// The low 16 bits, which are all that there are.
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
    /// The kernel is about to get the reply `body` to a request of `kind`, which may be changed where it lies.
    pub(crate) fn tell(&self, kind: Kind, body: &Piece<'_>) {
        match kind {
            Kind::Attr(nodeid) => self.tell_at(nodeid, body, 0, ATTR, false),
            Kind::Statx(nodeid) => self.tell_at(nodeid, body, 0, STATX, false),
            Kind::Entry => self.tell_entry(body, 0),
            Kind::Entries => entries(body).for_each(|offset| self.tell_entry(body, offset)),
            Kind::Carried | Kind::Open(..) | Kind::Create(_) | Kind::Own(_) => {}
        }
    }

    /// The kernel did not take the reply.
    pub(crate) fn was_not_told(&self, kind: Kind, body: &Piece<'_>) {
        let forget = |offset| {
            if let Some(nodeid) = named(body, offset) {
                self.attributes.lock().forget(nodeid, 1);
            }
        };
        match kind {
            Kind::Entry => forget(0),
            Kind::Entries => entries(body).for_each(forget),
            _ => {}
        }
    }

    /// As [`Self::tell`], of the entry in the answer to a CREATE.
    pub(super) fn tell_created(&self, entry: &mut EntryOut) {
        let telling = self.attributes.lock().tell(entry.nodeid.into(), entry.attr.mode.get(), true);
        if telling.expires_at_once {
            (entry.attr_valid, entry.attr_valid_nsec) = (0.into(), 0.into());
        }
        if telling.hides_set_id {
            entry.attr.mode = (entry.attr.mode.get() & !SET_ID).into();
        }
    }

    fn tell_entry(&self, body: &Piece<'_>, offset: usize) {
        if let Some(nodeid) = named(body, offset) {
            self.tell_at(nodeid, body, offset, ENTRY, true);
        }
    }

    fn tell_at(&self, nodeid: NodeId, body: &Piece<'_>, offset: usize, layout: Layout, is_reference: bool) {
        let Some(mode) = read(body, offset + layout.mode).map(u16::from_le_bytes).map(u32::from) else { return };
        if mode & libc::S_IFMT != libc::S_IFREG {
            return;
        }
        let Telling { expires_at_once, hides_set_id } = self.attributes.lock().tell(nodeid, mode, is_reference);
        if expires_at_once {
            write(body, offset + layout.valid, &[0; 8]);
            write(body, offset + layout.valid_nsec, &[0; 4]);
        }
        if hides_set_id {
            write(body, offset + layout.mode, &((mode & !SET_ID) as u16).to_le_bytes());
        }
    }
}

/// Where the entries of a READDIRPLUS begin.
fn entries<'a>(body: &'a Piece<'_>) -> impl Iterator<Item = usize> + 'a {
    let mut next = 0;
    std::iter::from_fn(move || {
        let offset = next;
        let head: [u8; size_of::<DirentPlus>()] = read(body, offset)?;
        let name_len = DirentPlus::read_from_bytes(&head).ok()?.dirent.namelen.get() as usize;
        next = offset.checked_add(padded_len(size_of::<DirentPlus>(), name_len))?;
        Some(offset)
    })
}

/// The regular file that the entry at `offset` stands for.
fn named(body: &Piece<'_>, offset: usize) -> Option<NodeId> {
    let nodeid = u64::from_le_bytes(read(body, offset + offset_of!(EntryOut, nodeid))?);
    let mode = u32::from(u16::from_le_bytes(read(body, offset + ENTRY.mode)?));
    (nodeid != 0 && mode & libc::S_IFMT == libc::S_IFREG).then_some(NodeId(nodeid))
}

/// `None` where the reply is shorter.
fn read<const LEN: usize>(body: &Piece<'_>, offset: usize) -> Option<[u8; LEN]> {
    (offset.checked_add(LEN)? <= body.len_bytes).then(|| {
        let mut bytes = [0; LEN];
        body.memory.read(body.offset + offset, &mut bytes);
        bytes
    })
}

/// Within what [`read`] has found to be there.
fn write(body: &Piece<'_>, offset: usize, bytes: &[u8]) {
    if offset + bytes.len() <= body.len_bytes {
        body.memory.write(body.offset + offset, bytes);
    }
}
