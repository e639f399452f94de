//! What of a reply are the daemon's numbers, and what the kernel gets in their place; and what a reply says of names.

use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::EntryOut,
    dirent::{DirentPlus, is_listed_name, padded_len},
    operation::{Effect, MadeType},
    ops::{flush::FlushIn, lk::LkIn, open::OpenOut, rename::Rename2In},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{
    Tables,
    handles::{DaemonHandle, OpenAtDaemon},
    inodes::{DaemonNode, Forgotten},
};
use crate::request::{DirEntryName, Request};

/// What the kernel gets after the header of a reply without an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RenumberedReply {
    /// What the daemon has written.
    AsItIs,
    /// This in its place.
    Body(Vec<u8>),
    /// Nothing: the reply is invalid.
    Broken,
}

impl Tables {
    /// Takes note of a reply with an error, which may become another.
    pub(super) fn refused(&mut self, request: &Request<'_>, errno: Errno) -> Errno {
        let effect = request.effect();
        if effect == Effect::LooksUp && errno == Errno::NOENT {
            request.entry_name().map(|entry_name| self.inodes.unname(&entry_name));
        }
        if effect == Effect::Opens && errno == Errno::NOSYS {
            // The kernel would go on without opening anything, and no other daemon would know of it.
            return Errno::OPNOTSUPP;
        }
        errno
    }

    /// Takes note of a reply without an error; `body` is what follows its header, of our own.
    ///
    /// [`Self::is_read`] tells for which requests it is needed.
    pub(super) fn answered(&mut self, request: &Request<'_>, body: Vec<u8>) -> RenumberedReply {
        let answer = match request.effect() {
            Effect::LooksUp => self.looked_up(request.entry_name(), body),
            Effect::Makes(made) => {
                let kind = match made {
                    MadeType::Directory => Some(libc::S_IFDIR),
                    MadeType::Symlink => Some(libc::S_IFLNK),
                    MadeType::ByMode(at) => Some(request.word(at) & libc::S_IFMT),
                    MadeType::SameAs(at) => {
                        let linked = NodeId(request.long(at));
                        self.inodes.identity(linked).map(|identity| identity.kind())
                    }
                };
                self.made(request.entry_name(), kind, body)
            }
            Effect::MakesAndOpens => self.created(request, request.entry_name(), body),
            Effect::OpensNameless => self.created(request, None, body),
            Effect::Opens => self.opened(request, body),
            Effect::Lists => self.entries(request, body),
            Effect::Removes => {
                request.entry_name().map(|entry_name| self.inodes.unname(&entry_name));
                Some(RenumberedReply::AsItIs)
            }
            Effect::Renames => {
                self.renamed(request);
                Some(RenumberedReply::AsItIs)
            }
            Effect::Locks => {
                let _ = LkIn::read_from_prefix(request.args).map(|(args, _)| self.handles.locked(&args));
                Some(RenumberedReply::AsItIs)
            }
            Effect::Flushes => {
                self.handles.flushed(request.handle(), request.long(std::mem::offset_of!(FlushIn, lock_owner)));
                Some(RenumberedReply::AsItIs)
            }
            Effect::None | Effect::Closes | Effect::Forgets | Effect::Interrupts => Some(RenumberedReply::AsItIs),
        };
        answer.unwrap_or(RenumberedReply::Broken)
    }

    /// Whether the reply to such a request names inodes or handles.
    pub(super) fn is_read(opcode: Option<Opcode>) -> bool {
        opcode.is_some_and(|opcode| opcode.row().reply_names_any())
    }

    /// Whether a reply to such a request says anything that is taken note of.
    pub(super) fn is_noted(opcode: Option<Opcode>) -> bool {
        let Some(row) = opcode.map(Opcode::row) else { return false };
        let is_done = matches!(row.effect, Effect::Removes | Effect::Renames | Effect::Locks | Effect::Flushes);
        is_done || row.reply_names_any()
    }

    fn renamed(&mut self, request: &Request<'_>) {
        if let Some((from, to)) = request.rename() {
            let has_flags = request.opcode == Some(Opcode::Rename2);
            let flags = if has_flags { request.word(std::mem::offset_of!(Rename2In, flags)) } else { 0 };
            self.inodes.renamed(&from, &to, flags & libc::RENAME_EXCHANGE != 0);
        }
    }

    fn looked_up(&mut self, entry_name: Option<DirEntryName>, mut body: Vec<u8>) -> Option<RenumberedReply> {
        let (entry, _) = EntryOut::mut_from_prefix(&mut body).ok()?;
        // An entry without a number says that the name is absent.
        if entry.nodeid.get() == 0 {
            entry_name.map(|entry_name| self.inodes.unname(&entry_name));
        } else {
            kind_of(entry)?;
            self.inodes.entered(entry, entry_name);
        }
        Some(RenumberedReply::Body(body))
    }

    /// Of what was made, which has to be of this type.
    fn made(
        &mut self,
        entry_name: Option<DirEntryName>,
        kind: Option<u32>,
        mut body: Vec<u8>,
    ) -> Option<RenumberedReply> {
        let (entry, _) = EntryOut::mut_from_prefix(&mut body).ok()?;
        self.enter_new(entry, entry_name, kind)?;
        Some(RenumberedReply::Body(body))
    }

    /// Nothing, and nothing is entered, where the kernel would refuse it: it forgets nothing then.
    fn enter_new(&mut self, entry: &mut EntryOut, entry_name: Option<DirEntryName>, kind: Option<u32>) -> Option<()> {
        let is_taken = entry.nodeid.get() > NodeId::ROOT.0 && kind_of(entry)? == kind?;
        is_taken.then(|| self.inodes.entered(entry, entry_name))
    }

    fn created(
        &mut self,
        request: &Request<'_>,
        entry_name: Option<DirEntryName>,
        mut body: Vec<u8>,
    ) -> Option<RenumberedReply> {
        let (entry, rest) = EntryOut::mut_from_prefix(&mut body).ok()?;
        let out = OpenOut::mut_from_bytes(rest).ok()?;
        let node = DaemonNode(entry.nodeid.get());
        self.enter_new(entry, entry_name, Some(libc::S_IFREG))?;
        self.open(request, entry.nodeid.into(), node, out);
        Some(RenumberedReply::Body(body))
    }

    fn opened(&mut self, request: &Request<'_>, mut body: Vec<u8>) -> Option<RenumberedReply> {
        let out = OpenOut::mut_from_bytes(&mut body).ok()?;
        // Unknown only if the kernel has forgotten the inode, which it does not do while it waits.
        let node = self.inodes.daemon_of(request.nodeid()).ok()?;
        self.open(request, request.nodeid(), node, out);
        Some(RenumberedReply::Body(body))
    }

    fn open(&mut self, request: &Request<'_>, nodeid: NodeId, node: DaemonNode, out: &mut OpenOut) {
        let known = OpenAtDaemon { handle: DaemonHandle(out.fh.get()), node };
        out.fh = self.handles.opened(request.opened(nodeid), known).into();
    }

    fn entries(&mut self, request: &Request<'_>, mut body: Vec<u8>) -> Option<RenumberedReply> {
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
                let entry_name = DirEntryName { parent: request.nodeid(), name: name.into() };
                self.inodes.entered(&mut plus.entry, Some(entry_name));
            }
            rest = behind;
        }
        Some(RenumberedReply::Body(body))
    }

    /// The kernel did not take what [`Self::answered`] made: nobody waits any more. Returns what the daemon is to drop.
    ///
    /// What it has opened it keeps open until the end of the connection: rare, and bounded by that.
    pub(super) fn untaken(&mut self, request: &Request<'_>, body: &[u8]) -> Vec<Forgotten> {
        let Some(row) = request.opcode.map(Opcode::row) else { return Vec::new() };
        if let Some(handle) = row.reply_handle_at.and_then(|at| long_at(body, at)) {
            // What the daemon does not have needs no closing.
            let _ = self.handles.released(Handle(handle));
        }
        let nodeids = match row.effect {
            Effect::Lists => plus_nodeids(body),
            _ => row.reply_nodeid_at.and_then(|at| long_at(body, at)).map(NodeId).into_iter().collect(),
        };
        nodeids.into_iter().filter_map(|nodeid| self.inodes.forget(nodeid, 1)).collect()
    }
}

fn long_at(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?))
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

/// Returns the length of each entry with its name and padding, or `None` if one has an invalid name or overruns the
/// reply: the kernel then skips the rest, and forgets none of it.
fn plus_lens(mut body: &[u8]) -> Option<Vec<usize>> {
    let mut lens = Vec::new();
    while !body.is_empty() {
        let (plus, rest) = DirentPlus::ref_from_prefix(body).ok()?;
        let name = rest.get(..plus.dirent.namelen.get() as usize)?;
        is_listed_name(name).then_some(())?;
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
