//! What of a reply are the daemon's numbers, and what the kernel gets in their place; and what a reply says of names.

use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::EntryOut,
    dirent::{DirentPlus, padded_len},
    ops::{create::CreateIn, link::LinkIn, lk::LkIn, mkdir::MkdirIn, mknod::MknodIn, open::OpenOut, rename::Rename2In},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    Tables,
    handles::{DaemonHandle, Known},
    inodes::{DaemonNode, Forgotten, Place},
    request::Request,
};

/// `l_type` of a lock that is given back.
const UNLOCK: u32 = libc::F_UNLCK as u32;

/// What the kernel gets behind the header of a reply without an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// What the daemon has written.
    AsItIs,
    /// This in its place.
    Body(Vec<u8>),
    /// It is none.
    Broken,
}

impl Tables {
    /// Takes note of a reply with an error, which may become another.
    pub(super) fn refused(&mut self, request: &Request<'_>, errno: Errno) -> Errno {
        match request.opcode {
            Some(Opcode::Lookup) if errno == Errno::NOENT => {
                request.place(0).map(|place| self.inodes.unname(&place));
            }
            // The kernel would go on without opening anything, and no other daemon would know of it.
            Some(Opcode::Open | Opcode::Opendir) if errno == Errno::NOSYS => return Errno::OPNOTSUPP,
            _ => {}
        }
        errno
    }

    /// Takes note of a reply without an error; `body` is what follows its header, of our own.
    ///
    /// [`Self::is_read`] tells for which requests it is needed.
    pub(super) fn answered(&mut self, request: &Request<'_>, body: Vec<u8>) -> Answer {
        let answer = match request.opcode {
            Some(Opcode::Lookup | Opcode::Symlink) => self.entry(request.place(0), body),
            Some(Opcode::Mknod) => self.entry(request.place(size_of::<MknodIn>()), body),
            Some(Opcode::Mkdir) => self.entry(request.place(size_of::<MkdirIn>()), body),
            Some(Opcode::Link) => self.entry(request.place(size_of::<LinkIn>()), body),
            Some(Opcode::Create) => self.created(request, request.place(size_of::<CreateIn>()), body),
            Some(Opcode::Tmpfile) => self.created(request, None, body),
            Some(Opcode::Open | Opcode::Opendir) => self.opened(request, body),
            Some(Opcode::Readdirplus) => self.entries(request, body),
            _ => {
                self.done(request);
                Some(Answer::AsItIs)
            }
        };
        answer.unwrap_or(Answer::Broken)
    }

    /// Whether the reply to such a request names inodes or handles.
    pub(super) fn is_read(opcode: Option<Opcode>) -> bool {
        matches!(
            opcode,
            Some(
                Opcode::Lookup
                    | Opcode::Symlink
                    | Opcode::Mknod
                    | Opcode::Mkdir
                    | Opcode::Link
                    | Opcode::Create
                    | Opcode::Tmpfile
                    | Opcode::Open
                    | Opcode::Opendir
                    | Opcode::Readdirplus
            )
        )
    }

    fn done(&mut self, request: &Request<'_>) {
        match request.opcode {
            Some(Opcode::Unlink | Opcode::Rmdir) => {
                request.place(0).map(|place| self.inodes.unname(&place));
            }
            Some(Opcode::Rename | Opcode::Rename2) => {
                if let Some((from, to)) = request.move_places() {
                    let is_second = request.opcode == Some(Opcode::Rename2);
                    let flags = if is_second { request.word(std::mem::offset_of!(Rename2In, flags)) } else { 0 };
                    self.inodes.renamed(&from, &to, flags & libc::RENAME_EXCHANGE != 0);
                }
            }
            Some(Opcode::Setlk | Opcode::Setlkw) => {
                let Ok((args, _)) = LkIn::read_from_prefix(request.args) else { return };
                let is_whole = args.lk.start.get() == 0 && args.lk.end.get() >= i64::MAX as u64;
                let is_unlock = args.lk.type_.get() == UNLOCK;
                if !is_unlock || is_whole {
                    self.handles.locked(request.handle(), !is_unlock);
                }
            }
            _ => {}
        }
    }

    fn entry(&mut self, place: Option<Place>, mut body: Vec<u8>) -> Option<Answer> {
        let (entry, _) = EntryOut::mut_from_prefix(&mut body).ok()?;
        self.enter(entry, place);
        Some(Answer::Body(body))
    }

    /// An entry without a number says that the name is absent.
    fn enter(&mut self, entry: &mut EntryOut, place: Option<Place>) {
        if entry.nodeid.get() != 0 {
            self.inodes.entered(entry, place);
        } else if let Some(place) = place {
            self.inodes.unname(&place);
        }
    }

    fn created(&mut self, request: &Request<'_>, place: Option<Place>, mut body: Vec<u8>) -> Option<Answer> {
        let (entry, rest) = EntryOut::mut_from_prefix(&mut body).ok()?;
        let out = OpenOut::mut_from_bytes(rest).ok().filter(|_| entry.nodeid.get() != 0)?;
        let node = DaemonNode(entry.nodeid.get());
        self.inodes.entered(entry, place);
        self.open(request, entry.nodeid.into(), node, out);
        Some(Answer::Body(body))
    }

    fn opened(&mut self, request: &Request<'_>, mut body: Vec<u8>) -> Option<Answer> {
        let out = OpenOut::mut_from_bytes(&mut body).ok()?;
        // Nothing where the kernel has forgotten it, which it does not while it waits.
        let node = self.inodes.daemon_of(request.nodeid()).ok()?;
        self.open(request, request.nodeid(), node, out);
        Some(Answer::Body(body))
    }

    fn open(&mut self, request: &Request<'_>, nodeid: NodeId, node: DaemonNode, out: &mut OpenOut) {
        let known = Known { handle: DaemonHandle(out.fh.get()), node };
        out.fh = self.handles.opened(request.opened(nodeid), known).into();
    }

    fn entries(&mut self, request: &Request<'_>, mut body: Vec<u8>) -> Option<Answer> {
        // Before anything is taken from it.
        let lens = plus_lens(&body)?;
        let mut rest = &mut body[..];
        for len in lens {
            let (one, behind) = rest.split_at_mut(len);
            let (plus, name) = DirentPlus::mut_from_prefix(one).ok()?;
            let name = &name[..plus.dirent.namelen.get() as usize];
            if name == b"." || name == b".." {
                // The kernel does not count them, and neither does a daemon.
                plus.entry.nodeid = 0.into();
            } else if plus.entry.nodeid.get() != 0 {
                let place = Place { parent: request.nodeid(), name: name.into() };
                self.inodes.entered(&mut plus.entry, Some(place));
            }
            rest = behind;
        }
        Some(Answer::Body(body))
    }

    /// The kernel did not take what [`Self::answered`] made: nobody waits any more. Gives what the daemon is to drop.
    pub(super) fn untaken(&mut self, request: &Request<'_>, body: &[u8]) -> Option<Forgotten> {
        match request.opcode {
            Some(Opcode::Open | Opcode::Opendir) => {
                // The daemon keeps it open until the end of the connection: rare, and bounded by that.
                let _ = OpenOut::read_from_bytes(body).map(|out| self.handles.released(Handle(out.fh.get())));
                None
            }
            Some(Opcode::Readdirplus) => None,
            _ => {
                let (entry, _) = EntryOut::read_from_prefix(body).ok()?;
                self.inodes.forget(entry.nodeid.into(), 1)
            }
        }
    }
}

/// How long each entry is with its name; the last may lack its padding. Nothing where an entry ends behind the end.
fn plus_lens(mut body: &[u8]) -> Option<Vec<usize>> {
    let mut lens = Vec::new();
    while !body.is_empty() {
        let (plus, rest) = DirentPlus::ref_from_prefix(body).ok()?;
        let namelen = plus.dirent.namelen.get() as usize;
        if namelen == 0 || namelen > rest.len() {
            return None;
        }
        let len = padded_len(size_of::<DirentPlus>(), namelen).min(body.len());
        lens.push(len);
        body = &body[len..];
    }
    Some(lens)
}

/// For messages to the daemon.
pub(super) fn forget_bytes(forgotten: &[Forgotten]) -> Vec<u8> {
    use transom_wire::ops::forget::ForgetOne;
    let one = |one: &Forgotten| ForgetOne { nodeid: one.daemon.0.into(), nlookup: one.count.into() };
    forgotten.iter().flat_map(|forgotten| one(forgotten).as_bytes().to_vec()).collect()
}
