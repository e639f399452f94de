//! A test driver: creates requests, hands them to the server as a transport would, and reads the replies.

use std::{
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::fs::OFlags;
use transom_wire::{
    Handle, NodeId, Opcode,
    attr::{Attr, AttrOut, EntryOut},
    dirent::{Dirent, DirentPlus, padded_len},
    header::{InHeader, OutHeader},
    ops::{
        create::CreateIn,
        flush::FlushIn,
        forget::ForgetIn,
        getattr::GetattrIn,
        init::{InitFlags, InitIn, InitOut},
        mkdir::MkdirIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        rename::Rename2In,
        setattr::{SetattrIn, SetattrValid},
        write::{WriteIn, WriteOut},
    },
};
use vm_memory::VolatileSlice;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::{
    Errno, migration,
    passthrough::{Config, Passthrough},
    server::{BlockingMode, Scratch, ServeOutcome, Server},
};

const PAGE: usize = 4096;

/// A guest with one session.
pub(super) struct Guest {
    server: Server<Passthrough>,
    unique: AtomicU64,
    /// The caller of all requests.
    pub(super) caller: (u32, u32),
    pub(super) init: InitOut,
}

/// An entry of READDIRPLUS.
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) off: u64,
    pub(super) ino: u64,
    pub(super) entry: EntryOut,
}

impl Guest {
    /// Creates a guest that supports all features.
    pub(super) fn new(dir: &Path, config: Config) -> Self {
        Self::with_flags(dir, config, InitFlags::all())
    }

    pub(super) fn with_flags(dir: &Path, config: Config, flags: InitFlags) -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        Self::begin(Passthrough::open(dir, config).unwrap(), flags).unwrap()
    }

    pub(super) fn begin(fs: Passthrough, flags: InitFlags) -> Result<Self, Errno> {
        let server = Server::new(fs);
        let mut guest = Self { server, unique: AtomicU64::new(2), caller: (0, 0), init: InitOut::new_zeroed() };
        guest.init = guest.initialise(flags)?;
        Ok(guest)
    }

    pub(super) fn initialise(&self, flags: InitFlags) -> Result<InitOut, Errno> {
        let mut arg = InitIn::new_zeroed();
        arg.major = 7.into();
        arg.minor = 45.into();
        arg.flags = (flags.bits() as u32).into();
        arg.flags2 = ((flags.bits() >> 32) as u32).into();
        arg.set_magic();
        self.ask(Opcode::Init, NodeId(0), &[arg.as_bytes()])
    }

    /// Goes on with the session of another guest's server, as after a migration.
    pub(super) fn load(fs: Passthrough, state: &[u8]) -> Result<Self, migration::Error> {
        let server = Server::new(fs);
        server.load_state(state)?;
        Ok(Self { server, unique: AtomicU64::new(2), caller: (0, 0), init: InitOut::new_zeroed() })
    }

    pub(super) fn save(&self) -> Result<Vec<u8>, migration::Error> {
        self.server.save_state(Vec::new())
    }

    pub(super) fn fs(&self) -> &Passthrough {
        self.server.file_system()
    }

    /// Sends a request with room for `room` bytes of reply; hands in a deferred request again, as a transport does.
    pub(super) fn call(&self, opcode: Opcode, nodeid: NodeId, parts: &[&[u8]], room: usize) -> Result<Vec<u8>, Errno> {
        let body = parts.concat();
        let mut header = InHeader::new_zeroed();
        header.len = ((size_of::<InHeader>() + body.len()) as u32).into();
        header.opcode = (opcode as u32).into();
        header.unique = self.unique.fetch_add(2, Relaxed).into();
        header.nodeid = nodeid.into();
        header.uid = self.caller.0.into();
        header.gid = self.caller.1.into();
        let data_len = parts.last().map_or(0, |data| data.len());
        let (mut memory, range) = before_page(size_of::<InHeader>() + body.len() - data_len, data_len);
        let request = &mut memory[range];
        request.copy_from_slice(&[header.as_bytes(), &body].concat());
        let (mut memory, range) = before_page(size_of::<OutHeader>(), room);
        let answer = &mut memory[range];
        let mut scratch = Scratch::default();
        let readable = [VolatileSlice::from(request)];
        let writable = [VolatileSlice::from(&mut *answer)];
        let mut outcome = self.server.handle(&readable, &writable, &mut scratch, BlockingMode::MustNotBlock);
        if let ServeOutcome::Defer(_) = outcome {
            outcome = self.server.handle(&readable, &writable, &mut scratch, BlockingMode::MayBlock);
        }
        let ServeOutcome::Done(done) = outcome else { panic!("deferred twice: {opcode:?}") };
        done.result?;
        Ok(answer[..done.used_len_bytes as usize].get(size_of::<OutHeader>()..).unwrap_or_default().to_vec())
    }

    /// Sends a request whose reply is one structure.
    pub(super) fn ask<T: FromBytes + KnownLayout + Immutable>(
        &self,
        opcode: Opcode,
        nodeid: NodeId,
        parts: &[&[u8]],
    ) -> Result<T, Errno> {
        let answer = self.call(opcode, nodeid, parts, size_of::<T>())?;
        Ok(T::read_from_bytes(&answer).unwrap())
    }

    /// Sends a request whose reply has no body.
    pub(super) fn tell(&self, opcode: Opcode, nodeid: NodeId, parts: &[&[u8]]) -> Result<(), Errno> {
        self.call(opcode, nodeid, parts, 0).map(drop)
    }

    pub(super) fn lookup(&self, parent: NodeId, name: &str) -> Result<EntryOut, Errno> {
        self.ask(Opcode::Lookup, parent, &[name.as_bytes(), b"\0"])
    }

    /// Looks up each component; returns the nodeid of the last one.
    pub(super) fn walk(&self, path: &str) -> Result<NodeId, Errno> {
        path.split('/').try_fold(NodeId::ROOT, |parent, name| Ok(self.lookup(parent, name)?.nodeid.into()))
    }

    pub(super) fn forget(&self, nodeid: NodeId, nlookup: u64) {
        self.tell(Opcode::Forget, nodeid, &[ForgetIn { nlookup: nlookup.into() }.as_bytes()]).unwrap();
    }

    pub(super) fn getattr(&self, nodeid: NodeId) -> Result<Attr, Errno> {
        let out: AttrOut = self.ask(Opcode::Getattr, nodeid, &[GetattrIn::new_zeroed().as_bytes()])?;
        Ok(out.attr)
    }

    pub(super) fn setattr(
        &self,
        nodeid: NodeId,
        valid: SetattrValid,
        fill: impl FnOnce(&mut SetattrIn),
    ) -> Result<Attr, Errno> {
        let mut arg = SetattrIn::new_zeroed();
        arg.valid = valid.bits().into();
        fill(&mut arg);
        let out: AttrOut = self.ask(Opcode::Setattr, nodeid, &[arg.as_bytes()])?;
        Ok(out.attr)
    }

    pub(super) fn open(&self, nodeid: NodeId, flags: OFlags) -> Result<Handle, Errno> {
        self.open_out(nodeid, flags).map(|out| out.fh.into())
    }

    pub(super) fn open_out(&self, nodeid: NodeId, flags: OFlags) -> Result<OpenOut, Errno> {
        let arg = OpenIn { flags: flags.bits().into(), open_flags: 0.into() };
        self.ask(Opcode::Open, nodeid, &[arg.as_bytes()])
    }

    pub(super) fn release(&self, nodeid: NodeId, fh: Handle) {
        let mut arg = ReleaseIn::new_zeroed();
        arg.fh = fh.into();
        self.tell(Opcode::Release, nodeid, &[arg.as_bytes()]).unwrap();
    }

    pub(super) fn flush(&self, nodeid: NodeId, fh: Handle) -> Result<(), Errno> {
        let mut arg = FlushIn::new_zeroed();
        arg.fh = fh.into();
        self.tell(Opcode::Flush, nodeid, &[arg.as_bytes()])
    }

    pub(super) fn read(&self, fh: Handle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.read_by(fh, offset, size, OFlags::empty())
    }

    /// Reads through an open file that now has `flags`.
    pub(super) fn read_by(&self, fh: Handle, offset: u64, size: u32, flags: OFlags) -> Result<Vec<u8>, Errno> {
        let arg = ReadIn { flags: flags.bits().into(), ..read_in(fh, offset, size) };
        self.call(Opcode::Read, NodeId(0), &[arg.as_bytes()], size as usize)
    }

    pub(super) fn write(&self, fh: Handle, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        self.write_with(fh, offset, data, |_| {})
    }

    pub(super) fn write_with(
        &self,
        fh: Handle,
        offset: u64,
        data: &[u8],
        fill: impl FnOnce(&mut WriteIn),
    ) -> Result<u32, Errno> {
        let mut arg = WriteIn::new_zeroed();
        arg.fh = fh.into();
        arg.offset = offset.into();
        arg.size = (data.len() as u32).into();
        fill(&mut arg);
        let out: WriteOut = self.ask(Opcode::Write, NodeId(0), &[arg.as_bytes(), data])?;
        Ok(out.size.get())
    }

    pub(super) fn create(&self, parent: NodeId, name: &str, flags: OFlags) -> Result<(EntryOut, OpenOut), Errno> {
        self.create_mode(parent, name, flags, 0o644)
    }

    pub(super) fn create_mode(
        &self,
        parent: NodeId,
        name: &str,
        flags: OFlags,
        mode: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        let flags = (flags | OFlags::CREATE).bits();
        let arg = CreateIn { flags: flags.into(), mode: mode.into(), umask: 0.into(), open_flags: 0.into() };
        let room = size_of::<EntryOut>() + size_of::<OpenOut>();
        created(&self.call(Opcode::Create, parent, &[arg.as_bytes(), name.as_bytes(), b"\0"], room)?)
    }

    pub(super) fn tmpfile(&self, parent: NodeId) -> Result<(EntryOut, OpenOut), Errno> {
        let flags = OFlags::RDWR.bits();
        let arg = CreateIn { flags: flags.into(), mode: 0o600.into(), umask: 0.into(), open_flags: 0.into() };
        let room = size_of::<EntryOut>() + size_of::<OpenOut>();
        created(&self.call(Opcode::Tmpfile, parent, &[arg.as_bytes(), b"/\0"], room)?)
    }

    pub(super) fn mkdir(&self, parent: NodeId, name: &str) -> Result<EntryOut, Errno> {
        let arg = MkdirIn { mode: 0o755.into(), umask: 0.into() };
        self.ask(Opcode::Mkdir, parent, &[arg.as_bytes(), name.as_bytes(), b"\0"])
    }

    pub(super) fn unlink(&self, parent: NodeId, name: &str) -> Result<(), Errno> {
        self.tell(Opcode::Unlink, parent, &[name.as_bytes(), b"\0"])
    }

    pub(super) fn rmdir(&self, parent: NodeId, name: &str) -> Result<(), Errno> {
        self.tell(Opcode::Rmdir, parent, &[name.as_bytes(), b"\0"])
    }

    pub(super) fn rename(&self, from: (NodeId, &str), to: (NodeId, &str), flags: u32) -> Result<(), Errno> {
        let arg = Rename2In { newdir: to.0.into(), flags: flags.into(), padding: 0.into() };
        let names = [from.1.as_bytes(), b"\0", to.1.as_bytes(), b"\0"].concat();
        self.tell(Opcode::Rename2, from.0, &[arg.as_bytes(), &names])
    }

    pub(super) fn opendir(&self, nodeid: NodeId) -> Result<Handle, Errno> {
        let out: OpenOut = self.ask(Opcode::Opendir, nodeid, &[OpenIn::new_zeroed().as_bytes()])?;
        Ok(out.fh.into())
    }

    /// Sends one READDIR; returns names with their cookies.
    pub(super) fn readdir(
        &self,
        nodeid: NodeId,
        fh: Handle,
        offset: u64,
        size: u32,
    ) -> Result<Vec<(Vec<u8>, u64)>, Errno> {
        Ok(self.readdir_inos(nodeid, fh, offset, size)?.into_iter().map(|(name, off, _)| (name, off)).collect())
    }

    /// Sends one READDIR. Returns the entries with their inode numbers.
    pub(super) fn readdir_inos(
        &self,
        nodeid: NodeId,
        fh: Handle,
        offset: u64,
        size: u32,
    ) -> Result<Vec<(Vec<u8>, u64, u64)>, Errno> {
        let answer = self.call(Opcode::Readdir, nodeid, &[read_in(fh, offset, size).as_bytes()], size as usize)?;
        let mut rest = &answer[..];
        let mut entries = Vec::new();
        while let Ok((head, names)) = Dirent::read_from_prefix(rest) {
            let len = head.namelen.get() as usize;
            entries.push((names[..len].to_vec(), head.off.get(), head.ino.get()));
            rest = &rest[padded_len(size_of::<Dirent>(), len)..];
        }
        Ok(entries)
    }

    /// Sends one READDIRPLUS.
    pub(super) fn readdirplus(&self, nodeid: NodeId, fh: Handle, offset: u64, size: u32) -> Result<Vec<Listed>, Errno> {
        let answer = self.call(Opcode::Readdirplus, nodeid, &[read_in(fh, offset, size).as_bytes()], size as usize)?;
        let mut rest = &answer[..];
        let mut entries = Vec::new();
        while let Ok((head, names)) = DirentPlus::read_from_prefix(rest) {
            let len = head.dirent.namelen.get() as usize;
            let (off, ino) = (head.dirent.off.get(), head.dirent.ino.get());
            entries.push(Listed { name: names[..len].to_vec(), off, ino, entry: head.entry });
            rest = &rest[padded_len(size_of::<DirentPlus>(), len)..];
        }
        Ok(entries)
    }
}

/// Returns memory, and the range in it of `head_len` bytes and of data that begin on a page, as a kernel's do.
fn before_page(head_len: usize, data_len: usize) -> (Vec<u8>, Range<usize>) {
    let head_pages_len = head_len.next_multiple_of(PAGE);
    let memory = vec![0; PAGE + head_pages_len + data_len];
    let data = memory.as_ptr().align_offset(PAGE) + head_pages_len;
    (memory, data - head_len..data + data_len)
}

fn created(answer: &[u8]) -> Result<(EntryOut, OpenOut), Errno> {
    let (entry, rest) = EntryOut::read_from_prefix(answer).unwrap();
    Ok((entry, OpenOut::read_from_bytes(rest).unwrap()))
}

fn read_in(fh: Handle, offset: u64, size: u32) -> ReadIn {
    let mut arg = ReadIn::new_zeroed();
    arg.fh = fh.into();
    arg.offset = offset.into();
    arg.size = size.into();
    arg
}

/// Returns the nodeid of an entry.
pub(super) fn node(entry: &EntryOut) -> NodeId {
    entry.nodeid.into()
}
