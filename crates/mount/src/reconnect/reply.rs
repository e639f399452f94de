//! What of a reply are the daemon's numbers, and what the kernel gets in their place; and what a reply says of names.

use rustix::io::Errno;
use transom_wire::{
    Handle, Name, NameError, NodeId, Opcode,
    attr::EntryOut,
    dirent::{DirentPlus, padded_len},
    ops::{
        create::CreateIn, flush::FlushIn, link::LinkIn, lk::LkIn, mkdir::MkdirIn, mknod::MknodIn, open::OpenOut,
        rename::Rename2In,
    },
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    Tables,
    handles::{DaemonHandle, Known},
    inodes::{DaemonNode, Forgotten, Place},
    request::Request,
};

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
            Some(Opcode::Lookup) => self.looked_up(request.place(0), body),
            Some(Opcode::Symlink) => self.made(request.place(0), Some(libc::S_IFLNK), body),
            Some(Opcode::Mknod) => {
                let mode = request.word(std::mem::offset_of!(MknodIn, mode));
                self.made(request.place(size_of::<MknodIn>()), Some(mode & libc::S_IFMT), body)
            }
            Some(Opcode::Mkdir) => self.made(request.place(size_of::<MkdirIn>()), Some(libc::S_IFDIR), body),
            Some(Opcode::Link) => {
                let linked = NodeId(request.long(std::mem::offset_of!(LinkIn, oldnodeid)));
                let kind = self.inodes.identity(linked).map(|identity| identity.kind());
                self.made(request.place(size_of::<LinkIn>()), kind, body)
            }
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

    /// Whether a reply to such a request says anything that is taken note of.
    pub(super) fn is_noted(opcode: Option<Opcode>) -> bool {
        let is_done = matches!(
            opcode,
            Some(
                Opcode::Unlink
                    | Opcode::Rmdir
                    | Opcode::Rename
                    | Opcode::Rename2
                    | Opcode::Setlk
                    | Opcode::Setlkw
                    | Opcode::Flush
            )
        );
        is_done || Self::is_read(opcode)
    }

    fn done(&mut self, request: &Request<'_>) {
        match request.opcode {
            Some(Opcode::Unlink | Opcode::Rmdir) => {
                request.place(0).map(|place| self.inodes.unname(&place));
            }
            Some(Opcode::Rename | Opcode::Rename2) => {
                if let Some((from, to)) = request.rename() {
                    let is_second = request.opcode == Some(Opcode::Rename2);
                    let flags = if is_second { request.word(std::mem::offset_of!(Rename2In, flags)) } else { 0 };
                    self.inodes.renamed(&from, &to, flags & libc::RENAME_EXCHANGE != 0);
                }
            }
            Some(Opcode::Setlk | Opcode::Setlkw) => {
                let _ = LkIn::read_from_prefix(request.args).map(|(args, _)| self.handles.locked(&args));
            }
            Some(Opcode::Flush) => {
                self.handles.flushed(request.handle(), request.long(std::mem::offset_of!(FlushIn, lock_owner)));
            }
            _ => {}
        }
    }

    fn looked_up(&mut self, place: Option<Place>, mut body: Vec<u8>) -> Option<Answer> {
        let (entry, _) = EntryOut::mut_from_prefix(&mut body).ok()?;
        // An entry without a number says that the name is absent.
        if entry.nodeid.get() == 0 {
            place.map(|place| self.inodes.unname(&place));
        } else {
            kind_of(entry)?;
            self.inodes.entered(entry, place);
        }
        Some(Answer::Body(body))
    }

    /// Of what was made, which has to be of this type.
    fn made(&mut self, place: Option<Place>, kind: Option<u32>, mut body: Vec<u8>) -> Option<Answer> {
        let (entry, _) = EntryOut::mut_from_prefix(&mut body).ok()?;
        self.enter_new(entry, place, kind)?;
        Some(Answer::Body(body))
    }

    /// Nothing, and nothing is entered, where the kernel would refuse it: it forgets nothing then.
    fn enter_new(&mut self, entry: &mut EntryOut, place: Option<Place>, kind: Option<u32>) -> Option<()> {
        let is_taken = entry.nodeid.get() > NodeId::ROOT.0 && kind_of(entry)? == kind?;
        is_taken.then(|| self.inodes.entered(entry, place))
    }

    fn created(&mut self, request: &Request<'_>, place: Option<Place>, mut body: Vec<u8>) -> Option<Answer> {
        let (entry, rest) = EntryOut::mut_from_prefix(&mut body).ok()?;
        let out = OpenOut::mut_from_bytes(rest).ok()?;
        let node = DaemonNode(entry.nodeid.get());
        self.enter_new(entry, place, Some(libc::S_IFREG))?;
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
    ///
    /// What it has opened it keeps open until the end of the connection: rare, and bounded by that.
    pub(super) fn untaken(&mut self, request: &Request<'_>, body: &[u8]) -> Vec<Forgotten> {
        let opened = match request.opcode {
            Some(Opcode::Open | Opcode::Opendir) => Some(body),
            Some(Opcode::Create | Opcode::Tmpfile) => body.get(size_of::<EntryOut>()..),
            _ => None,
        };
        if let Some((out, _)) = opened.and_then(|opened| OpenOut::read_from_prefix(opened).ok()) {
            // What the daemon does not have needs no closing.
            let _ = self.handles.released(Handle(out.fh.get()));
        }
        let nodeids = match request.opcode {
            Some(Opcode::Open | Opcode::Opendir) => Vec::new(),
            Some(Opcode::Readdirplus) => plus_nodeids(body),
            _ => EntryOut::read_from_prefix(body).map(|(entry, _)| entry.nodeid.into()).into_iter().collect(),
        };
        nodeids.into_iter().filter_map(|nodeid| self.inodes.forget(nodeid, 1)).collect()
    }
}

/// The type of a file, where the kernel takes what is said of it.
///
/// Source: linux/fs/fuse/dir.c, `fuse_invalid_attr`.
fn kind_of(entry: &EntryOut) -> Option<u32> {
    const KINDS: [u32; 7] =
        [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK, libc::S_IFCHR, libc::S_IFBLK, libc::S_IFIFO, libc::S_IFSOCK];
    let kind = entry.attr.mode.get() & libc::S_IFMT;
    (KINDS.contains(&kind) && i64::try_from(entry.attr.size.get()).is_ok()).then_some(kind)
}

/// How long each entry is with its name and padding. Nothing where one has a name that is none, or ends behind the end: the kernel
/// passes the rest over then, and forgets nothing of it.
fn plus_lens(mut body: &[u8]) -> Option<Vec<usize>> {
    let mut lens = Vec::new();
    while !body.is_empty() {
        let (plus, rest) = DirentPlus::ref_from_prefix(body).ok()?;
        let name = rest.get(..plus.dirent.namelen.get() as usize)?;
        Name::new(name).map_or_else(|error| error == NameError::Dots, |_| true).then_some(())?;
        let len = padded_len(size_of::<DirentPlus>(), name.len());
        body = body.get(len..)?;
        lens.push(len);
    }
    Some(lens)
}

/// The numbers in entries that [`plus_lens`] has found right.
fn plus_nodeids(body: &[u8]) -> Vec<NodeId> {
    let mut rest = body;
    let ones = plus_lens(body).unwrap_or_default().into_iter().filter_map(|len| rest.split_off(..len));
    ones.filter_map(|one| Some(DirentPlus::read_from_prefix(one).ok()?.0.entry.nodeid.into())).collect()
}

/// For messages to the daemon.
pub(super) fn forget_bytes(forgotten: &[Forgotten]) -> Vec<u8> {
    use transom_wire::ops::forget::ForgetOne;
    let one = |one: &Forgotten| ForgetOne { nodeid: one.daemon.0.into(), nlookup: one.count.into() };
    forgotten.iter().flat_map(|forgotten| one(forgotten).as_bytes().to_vec()).collect()
}
