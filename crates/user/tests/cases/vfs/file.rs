//! An open file description: what several handles, of several processes, may share.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use transom_conformance::client::{Entry, Errno, FileType, Handle, OFlags, SeekFrom};
use transom_guest::session::Caller;
use transom_wire::{
    attr::Attr,
    ops::{
        init::InitFlags,
        release::RELEASE_FLOCK_UNLOCK,
        setattr::{SetattrIn, SetattrValid},
        write::WriteFlags,
    },
};
use zerocopy::FromZeros as _;

use super::{
    errno::{Result, from_guest},
    locks,
    node::Node,
    process::Process,
    rights::{self, EXECUTE, READ, WRITE},
    walk::{DirPath, Found, Last, name_of},
};

/// The largest offset of a file.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Flags that the server of an open gets; the rest is decided here.
const SENT: OFlags = OFlags::RWMODE
    .union(OFlags::APPEND)
    .union(OFlags::DIRECT)
    .union(OFlags::NOATIME)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::DIRECTORY);
/// Of a READDIR.
const DIRECTORY_ROOM: usize = 32 << 10;

/// Released with the value.
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    /// Absent for O_PATH.
    fh: Option<transom_wire::Handle>,
    pub(crate) flags: OFlags,
    pub(crate) is_directory: bool,
    offset: Mutex<u64>,
    /// Some lock is the description's own.
    pub(crate) is_locked: AtomicBool,
    /// What a directory's READDIR has brought and nobody has taken.
    entries: Mutex<VecDeque<Entry>>,
}

impl Process<'_> {
    /// open(2).
    pub(crate) fn open_path(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        if flags.contains(OFlags::TMPFILE) {
            return self.open_unnamed(path, flags, mode);
        }
        let is_created = flags.contains(OFlags::CREATE) && !flags.contains(OFlags::PATH);
        let (place, last) = self.find_parent(path)?;
        let found = match (&last, is_created) {
            (Last::Name(_, true), true) => return Err(Errno::ISDIR),
            (Last::Name(name, false), true) => match self.open_or_create(place, name, flags, mode, &mut 0)? {
                Opened::New(handle) => return Ok(handle),
                Opened::Old(found) => found,
            },
            _ => self.find_last(place, last, !flags.contains(OFlags::NOFOLLOW), &mut 0)?,
        };
        self.open_found(&found, flags)
    }

    /// O_CREAT: the file at `name`, or a new one; through symlinks, to where the last of them leads.
    fn open_or_create(
        &self,
        place: DirPath,
        name: &[u8],
        flags: OFlags,
        mode: u32,
        links: &mut usize,
    ) -> Result<Opened> {
        let is_exclusive = flags.contains(OFlags::EXCL);
        let (node, attr) = loop {
            if let Some(found) = self.lookup(&place, name)? {
                break found;
            }
            match self.create(&place, name, flags, mode) {
                // Somebody else has made it meanwhile: its rights are checked like those of any that was there.
                Err(Errno::EXIST) if !is_exclusive => {}
                created => return created.map(Opened::New),
            }
        };
        if is_exclusive {
            return Err(Errno::EXIST);
        }
        if rights::is_symlink(&attr) && !flags.contains(OFlags::NOFOLLOW) {
            let (place, last) = self.follow(place, &node, links)?;
            return match last {
                Last::Name(_, true) => Err(Errno::ISDIR),
                Last::Name(name, false) => self.open_or_create(place, &name, flags, mode, links),
                _ => self.find_last(place, last, true, links).map(Opened::Old),
            };
        }
        if rights::is_directory(&attr) {
            return Err(Errno::ISDIR);
        }
        Ok(Opened::Old(Found { node, attr, place: None }))
    }

    fn create(&self, place: &DirPath, name: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        let directory = place.node().attr()?;
        self.check(&directory, WRITE | EXECUTE)?;
        let (mode, sent) = (0o100_000 | self.new_mode(mode & 0o7777), flags & SENT | OFlags::CREATE | OFlags::EXCL);
        let (entry, opened) = self
            .vfs
            .session
            .create(&self.creator(&directory), place.node().id, name_of(name)?, mode, sent.bits())
            .map_err(from_guest)?;
        let node = Node::of(&self.vfs.session, &entry).ok_or(Errno::IO)?;
        Ok(self.add_file(OpenFile::new(node, Some(opened.fh.into()), flags, false)))
    }

    fn open_unnamed(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        if flags & OFlags::RWMODE == OFlags::RDONLY {
            return Err(Errno::INVAL);
        }
        let found = self.find(path, true)?;
        if found.place.is_none() {
            return Err(Errno::NOTDIR);
        }
        self.check(&found.attr, WRITE | EXECUTE)?;
        let (mode, sent) = (0o100_000 | self.new_mode(mode & 0o7777), flags & (SENT | OFlags::EXCL | OFlags::TMPFILE));
        let creator = self.creator(&found.attr);
        let made = self.vfs.session.tmpfile(&creator, found.node.id, mode, sent.bits());
        let (entry, opened) = made.map_err(from_guest)?;
        let node = Node::of(&self.vfs.session, &entry).ok_or(Errno::IO)?;
        Ok(self.add_file(OpenFile::new(node, Some(opened.fh.into()), flags, false)))
    }

    fn open_found(&self, found: &Found, flags: OFlags) -> Result<Handle> {
        let Found { node, attr, place } = found;
        let is_directory = place.is_some();
        if flags.contains(OFlags::DIRECTORY) && !is_directory {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(OFlags::PATH) {
            return Ok(self.add_file(OpenFile::new(Arc::clone(node), None, flags, is_directory)));
        }
        if rights::is_symlink(attr) {
            return Err(Errno::LOOP);
        }
        let access = flags & OFlags::RWMODE;
        let writes = access != OFlags::RDONLY || flags.contains(OFlags::TRUNC);
        if is_directory && writes {
            return Err(Errno::ISDIR);
        }
        let reads = access != OFlags::WRONLY;
        self.check(attr, if reads { READ } else { 0 } | if writes { WRITE } else { 0 })?;
        if flags.contains(OFlags::NOATIME) && !rights::is_owner(&self.who, attr) {
            return Err(Errno::PERM);
        }
        match attr.mode.get() & 0o170_000 {
            0o100_000 | 0o040_000 => {}
            0o140_000 => return Err(Errno::NXIO),
            // Pipes and devices are handled by the guest's kernel, which does not exist here.
            _ => return Err(Errno::NOSYS),
        }
        let session = &self.vfs.session;
        let sent = (flags & SENT).bits();
        let opened = if is_directory {
            session.opendir(&self.caller(), node.id, sent)
        } else {
            session.open(&self.caller(), node.id, sent)
        };
        let file = OpenFile::new(Arc::clone(node), Some(opened.map_err(from_guest)?.fh.into()), flags, is_directory);
        if flags.contains(OFlags::TRUNC) {
            file.truncate(self, 0)?;
        }
        Ok(self.add_file(file))
    }
}

enum Opened {
    New(Handle),
    Old(Found),
}

impl OpenFile {
    fn new(node: Arc<Node>, fh: Option<transom_wire::Handle>, flags: OFlags, is_directory: bool) -> Self {
        Self {
            node,
            fh,
            flags,
            is_directory,
            offset: Mutex::new(0),
            is_locked: AtomicBool::new(false),
            entries: Mutex::default(),
        }
    }

    /// EBADF for O_PATH.
    pub(crate) fn fh(&self) -> Result<transom_wire::Handle> {
        self.fh.ok_or(Errno::BADF)
    }

    pub(crate) fn for_reading(&self) -> Result<transom_wire::Handle> {
        if self.flags & OFlags::RWMODE == OFlags::WRONLY { Err(Errno::BADF) } else { self.fh() }
    }

    pub(crate) fn for_writing(&self) -> Result<transom_wire::Handle> {
        if self.flags & OFlags::RWMODE == OFlags::RDONLY { Err(Errno::BADF) } else { self.fh() }
    }

    pub(crate) fn attr(&self, process: &Process<'_>) -> Result<Attr> {
        let session = &process.vfs.session;
        session.getattr(&process.caller(), self.node.id, self.fh).map(|out| out.attr).map_err(from_guest)
    }

    /// What a close by this process does, whether or not others still have the file open.
    pub(crate) fn flush(&self, process: &Process<'_>) -> Result<()> {
        let Some(fh) = self.fh.filter(|_| !self.is_directory) else { return Ok(()) };
        let flushed = process.vfs.session.flush(&process.caller(), self.node.id, fh, process.lock_owner());
        flushed.map_err(from_guest)
    }

    pub(crate) fn read(&self, process: &Process<'_>, buf: &mut [u8]) -> Result<usize> {
        let mut offset = self.offset.lock();
        let len = self.read_at(process, buf, *offset)?;
        *offset += len as u64;
        Ok(len)
    }

    pub(crate) fn read_at(&self, process: &Process<'_>, buf: &mut [u8], offset: u64) -> Result<usize> {
        let fh = self.for_reading()?;
        if self.is_directory {
            return Err(Errno::ISDIR);
        }
        if offset > OFFSET_MAX {
            return Err(Errno::INVAL);
        }
        let flags = (self.flags & SENT).bits();
        let session = &process.vfs.session;
        session.read_whole(&process.caller(), self.node.id, fh, flags, offset, buf).map_err(from_guest)
    }

    pub(crate) fn write(&self, process: &Process<'_>, data: &[u8]) -> Result<usize> {
        let mut offset = self.offset.lock();
        if self.flags.contains(OFlags::APPEND) {
            *offset = self.attr(process)?.size.get();
        }
        let len = self.write_at(process, data, *offset)?;
        *offset += len as u64;
        Ok(len)
    }

    pub(crate) fn write_at(&self, process: &Process<'_>, data: &[u8], offset: u64) -> Result<usize> {
        let fh = self.for_writing()?;
        if offset > OFFSET_MAX {
            return Err(Errno::INVAL);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let data = &data[..data.len().min((OFFSET_MAX - offset) as usize)];
        if data.is_empty() {
            return Err(Errno::FBIG);
        }
        let attr = self.attr(process)?;
        let offset = if self.flags.contains(OFlags::APPEND) { attr.size.get() } else { offset };
        let mut write_flags = WriteFlags::empty();
        write_flags.set(WriteFlags::KILL_SUIDGID, process.drop_set_id(self.node.id, &attr)?);
        let flags = (self.flags & SENT).bits();
        let session = &process.vfs.session;
        session.write_whole(&process.caller(), self.node.id, fh, flags, write_flags, offset, data).map_err(from_guest)
    }

    pub(crate) fn seek(&self, process: &Process<'_>, to: SeekFrom) -> Result<u64> {
        const DATA: u32 = 3;
        const HOLE: u32 = 4;
        let fh = self.fh()?;
        let mut offset = self.offset.lock();
        let by = |base: u64, delta: i64| base.checked_add_signed(delta).filter(|&offset| offset <= OFFSET_MAX);
        let session = &process.vfs.session;
        let search = |offset, whence| session.lseek(&process.caller(), self.node.id, fh, offset, whence);
        let new = match to {
            SeekFrom::Start(offset) => by(offset, 0).ok_or(Errno::INVAL)?,
            SeekFrom::Current(delta) => by(*offset, delta).ok_or(Errno::INVAL)?,
            SeekFrom::End(delta) => by(self.attr(process)?.size.get(), delta).ok_or(Errno::INVAL)?,
            SeekFrom::Data(offset) => search(offset, DATA).map_err(from_guest)?,
            SeekFrom::Hole(offset) => search(offset, HOLE).map_err(from_guest)?,
        };
        if self.is_directory {
            self.entries.lock().clear();
        }
        *offset = new;
        Ok(new)
    }

    pub(crate) fn truncate(&self, process: &Process<'_>, len: u64) -> Result<()> {
        let fh = self.for_writing().map_err(|_| Errno::INVAL)?;
        let attr = self.attr(process)?;
        let mut valid = SetattrValid::SIZE | SetattrValid::FH;
        if process.drop_set_id(self.node.id, &attr)? {
            valid |= SetattrValid::KILL_SUIDGID;
        }
        let change = SetattrIn { size: len.into(), fh: fh.into(), ..SetattrIn::new_zeroed() };
        process.set_attributes(self.node.id, valid, change)
    }

    /// Returns as many of the next entries as fit `room` bytes of getdents64(2), or EINVAL if not even one fits.
    pub(crate) fn entries(&self, process: &Process<'_>, room: usize) -> Result<Vec<Entry>> {
        let fh = self.fh()?;
        if !self.is_directory {
            return Err(Errno::NOTDIR);
        }
        let mut offset = self.offset.lock();
        let mut waiting = self.entries.lock();
        if waiting.is_empty() {
            waiting.extend(self.fetch_entries(process, fh, *offset)?);
        }
        let mut left = room;
        let mut taken = Vec::new();
        while let Some(entry) = waiting.front() {
            // An inode number, an offset, a length, a type; the name and its NUL.
            let len = (19 + entry.name.len() + 1).next_multiple_of(8);
            if len > left {
                break;
            }
            left -= len;
            *offset = entry.cookie;
            taken.extend(waiting.pop_front());
        }
        if taken.is_empty() && !waiting.is_empty() { Err(Errno::INVAL) } else { Ok(taken) }
    }

    fn fetch_entries(&self, process: &Process<'_>, fh: transom_wire::Handle, offset: u64) -> Result<Vec<Entry>> {
        let session = &process.vfs.session;
        let plus = process.has(InitFlags::DO_READDIRPLUS);
        let mut room = vec![0; DIRECTORY_ROOM];
        let len = session.readdir(&process.caller(), self.node.id, fh, offset, plus, &mut room).map_err(from_guest)?;
        let mut entries = Vec::new();
        for entry in session.entries(&room[..len], plus) {
            let entry = entry.map_err(from_guest)?;
            // A name that comes with its inode counts as a lookup.
            drop(entry.entry.and_then(|found| Node::of(session, &found)));
            let kind = FileType::from_raw_mode(entry.type_ << 12);
            entries.push(Entry { name: entry.name.to_vec(), ino: entry.ino, kind, cookie: entry.off });
        }
        Ok(entries)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(fh) = self.fh else { return };
        let (caller, flags) = (Caller::default(), (self.flags & SENT).bits());
        if self.is_locked.load(Ordering::Relaxed) {
            // Where it fails, so does the server.
            let _ =
                locks::unlock_description(self).map(|unlock| self.node.session.setlk(&caller, self.node.id, &unlock));
        }
        // A server that cannot close a file has nobody to tell.
        let _ = if self.is_directory {
            self.node.session.releasedir(&caller, self.node.id, fh, flags)
        } else {
            self.node.session.release(&caller, self.node.id, fh, flags, RELEASE_FLOCK_UNLOCK, locks::description(self))
        };
    }
}
