//! Requests that were dropped before their replies came, although these bring what has to be given back: references to
//! inodes and open files.
//!
//! The next `Pending::start` or `flush_forgets` releases what has arrived since. The list's lock is not held
//! meanwhile: a reply that is received may call a waker, which may start a request.

use alloc::vec::Vec;
use core::{
    mem,
    sync::atomic::{AtomicUsize, Ordering},
};

use transom_wire::{
    NodeId, Opcode, Unique,
    attr::EntryOut,
    operation::{Effect, Release, Releasedir},
    ops::{create::CreateOut, open::OpenOut, release::ReleaseIn},
};
use zerocopy::FromBytes;

use super::{
    Pending, Request, Session,
    reply::{self, HEADER_LEN},
    request::Caller,
    sent::Sent,
};
use crate::{
    Errno, Platform,
    channel::{OwnedReply, Ticket},
    sync::{Mutex, rank},
};

/// A request whose reply nobody waits for any more.
pub(super) struct Orphan {
    pub(super) ticket: Ticket,
    pub(super) unique: Unique,
    pub(super) room: usize,
    pub(super) sent: Sent,
}

/// All of a session's.
pub(super) struct Orphans<P: Platform> {
    waiting: Mutex<P, { rank::LEAF }, Vec<Orphan>>,
    /// Their number, for a look without the lock.
    count: AtomicUsize,
}

impl<P: Platform> Orphans<P> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(Vec::new()), count: AtomicUsize::new(0) }
    }
}

/// Returns whether a reply brings something that has to be given back. A listing with entries is left out: it is read
/// by whoever has the buffer.
pub(super) fn brings_something(effect: Effect) -> bool {
    matches!(effect, Effect::LooksUp | Effect::Makes(_) | Effect::Opens | Effect::MakesAndOpens | Effect::OpensNameless)
}

impl<P: Platform> Session<P> {
    /// Keeps a request until its reply has come.
    pub(super) fn adopt(&self, orphan: Orphan) {
        self.orphans.waiting.lock().push(orphan);
        self.orphans.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Releases the references and open files that came with the replies to dropped requests.
    pub(super) fn settle_orphans(&self) {
        if self.orphans.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let all = mem::take(&mut *self.orphans.waiting.lock());
        for orphan in all {
            if self.channel.is_finished(&orphan.ticket) {
                self.orphans.count.fetch_sub(1, Ordering::AcqRel);
                self.settle(orphan);
            } else {
                self.orphans.waiting.lock().push(orphan);
            }
        }
    }

    fn settle(&self, orphan: Orphan) {
        let Orphan { ticket, unique, room, sent } = orphan;
        let Ok(OwnedReply { head, written }) = self.channel.finish(ticket) else { return };
        // A reply with an error has brought nothing.
        let Ok(body_len) = self.judge(reply::check(&head, written, room, unique)) else { return };
        let body = head.get(HEADER_LEN..).and_then(|body| body.get(..body_len)).unwrap_or_default();
        if let Ok(CreateOut { entry, open }) = CreateOut::read_from_bytes(body) {
            self.release_unawaited(&sent, entry.nodeid.into(), &open);
            self.forget(entry.nodeid.into(), 1);
        } else if let Ok(entry) = EntryOut::read_from_bytes(body) {
            self.forget(entry.nodeid.into(), 1);
        } else if let Ok(open) = OpenOut::read_from_bytes(body) {
            self.release_unawaited(&sent, sent.node, &open);
        }
    }

    /// Closes a file that `sent` has opened, and that nobody gets. Does not wait for the reply.
    pub(super) fn release_unawaited(&self, sent: &Sent, node: NodeId, open: &OpenOut) {
        let opened_as = if sent.opcode() == Opcode::Opendir { Opcode::Opendir } else { Opcode::Open };
        if self.is_without_handle(opened_as, open.fh.into()) {
            return;
        }
        let args =
            ReleaseIn { fh: open.fh, flags: sent.open_flags.into(), release_flags: 0.into(), lock_owner: 0.into() };
        let caller = Caller::default();
        // What cannot be sent is left to the end of the session.
        let _: Result<(), Errno> = if opened_as == Opcode::Opendir {
            Request::<Releasedir>::new(&caller, node, &args)
                .and_then(|request| Pending::start(self, &caller, request))
                .map(drop)
        } else {
            Request::<Release>::new(&caller, node, &args)
                .and_then(|request| Pending::start(self, &caller, request))
                .map(drop)
        };
    }
}

const _: () = assert!(
    size_of::<CreateOut>() != size_of::<EntryOut>() && size_of::<EntryOut>() != size_of::<OpenOut>(),
    "a reply's length says what it is"
);
