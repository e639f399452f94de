//! A program that uses the library by paths, as the cases know a client: what is kept of the share is kept.

mod convert;

use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use transom_conformance::client::{
    Access, Attr, Client, Entry, Errno, FallocateFlags, FileType, Handle, Identity, Lock, LockKind, LockOwner, MapMode,
    Mapping, OFlags, RenameFlags, Result, SeekFrom, SetTime, Space, XattrFlags,
};
use transom_user::{
    guest::{
        fs::{self, Credentials, Fs, OpenOptions},
        session::Caller,
        volume,
    },
    platform::Process,
};
use transom_wire::device_number;

use crate::vfs::told;
use convert::{errno, fill, lock_kind, new_lock_owner, set_time};

/// One process of the program.
pub(crate) struct Program {
    fs: Mutex<Fs<Process>>,
    files: Mutex<BTreeMap<u64, Arc<Open>>>,
    next: Arc<AtomicU64>,
}

struct Open {
    file: fs::File<Process>,
    /// Of a directory that was read from, and what did not fit.
    entries: Mutex<Option<Stream>>,
}

type Stream = (volume::DirectoryStream<Process>, Option<volume::Entry>);

impl Program {
    /// Stands in the directory `path`.
    pub(crate) fn new(share: &Fs<Process>, path: &[u8]) -> Result<Self> {
        let credentials = Credentials { lock_owner: new_lock_owner(), ..share.credentials().clone() };
        let mut fs = share.with_credentials(credentials);
        fs.set_current_dir(path).map_err(errno)?;
        Ok(Self { fs: Mutex::new(fs), files: Mutex::default(), next: Arc::new(AtomicU64::new(3)) })
    }

    fn fs(&self) -> Fs<Process> {
        self.fs.lock().clone()
    }

    fn file(&self, handle: Handle) -> Result<Arc<Open>> {
        self.files.lock().get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    fn caller(&self) -> Caller<'static> {
        let Credentials { uid, gid, pid, umask, .. } = *self.fs().credentials();
        Caller { uid, gid, pid, umask, ..Caller::default() }
    }

    /// The directory's stream, opened when it is first used.
    fn stream<'e>(&self, open: &Open, entries: &'e mut Option<Stream>) -> Result<&'e mut Stream> {
        match entries {
            Some(stream) => Ok(stream),
            none => {
                let stream = self.fs().volume().opendir(&self.caller(), open.file.inode(), 0).map_err(errno)?;
                Ok(none.insert((stream, None)))
            }
        }
    }

    fn owner(&self, owner: LockOwner) -> volume::LockOwner {
        match owner {
            LockOwner::Process => volume::LockOwner::Process(self.fs().credentials().lock_owner),
            LockOwner::Description => volume::LockOwner::OpenFile,
        }
    }

    /// Closes everything, as at the end of a process.
    pub(crate) fn exit(&self) {
        let handles: Vec<_> = self.files.lock().keys().copied().collect();
        for handle in handles {
            let _ = self.close(Handle(handle));
        }
    }
}

impl Client for Program {
    fn open(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        if flags.contains(OFlags::PATH) {
            return Err(Errno::NOSYS);
        }
        let options = OpenOptions::of_flags(flags.bits()).mode(mode & 0o7777);
        let fs = self.fs();
        let file = if flags.contains(OFlags::TMPFILE) {
            let options = OpenOptions::of_flags((flags & !OFlags::TMPFILE).bits()).mode(mode & 0o7777);
            fs.tmpfile(path, &options).map_err(errno)?
        } else {
            fs.open(path, &options).map_err(errno)?
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.lock().insert(number, Arc::new(Open { file, entries: Mutex::default() }));
        Ok(Handle(number))
    }

    fn close(&self, handle: Handle) -> Result<()> {
        let open = self.files.lock().remove(&handle.0).ok_or(Errno::BADF)?;
        let owner = self.fs().credentials().lock_owner;
        open.file.as_open_file().flush(&self.caller(), owner).map_err(errno)
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        self.fs().create_dir(path, mode & 0o1777).map_err(errno)
    }

    fn mknod(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        let rdev = device_number::encode(device.0, device.1);
        self.fs().mknod(path, kind.as_raw_mode() | mode & 0o7777, rdev).map_err(errno)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.fs().symlink(target, path).map_err(errno)
    }

    fn readlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Err(Errno::INVAL);
        }
        let target = self.fs().read_link(path).map_err(errno)?;
        let len = target.len().min(buf.len());
        buf[..len].copy_from_slice(&target[..len]);
        Ok(len)
    }

    fn link(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()> {
        let fs = self.fs();
        if !follow {
            return fs.hard_link(old, new).map_err(errno);
        }
        let old = fs.canonicalize(old).map_err(errno)?;
        fs.hard_link(old, new).map_err(errno)
    }

    fn link_handle(&self, handle: Handle, new: &[u8]) -> Result<()> {
        self.fs().link_inode(self.file(handle)?.file.inode(), new).map_err(errno)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.fs().remove_file(path).map_err(errno)
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.fs().remove_dir(path).map_err(errno)
    }

    fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()> {
        self.fs().rename_with(old, new, flags.bits()).map_err(errno)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let fs = self.fs();
        let found = if follow { fs.metadata(path) } else { fs.symlink_metadata(path) };
        found.map(|found| told(found.attr())).map_err(errno)
    }

    fn stat_handle(&self, handle: Handle) -> Result<Attr> {
        self.file(handle)?.file.metadata().map(|found| told(found.attr())).map_err(errno)
    }

    fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        self.fs().set_permissions(path, mode & 0o7777).map_err(errno)
    }

    fn chmod_handle(&self, handle: Handle, mode: u32) -> Result<()> {
        self.file(handle)?.file.set_permissions(mode & 0o7777).map_err(errno)
    }

    fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        self.fs().set_owner(path, uid, gid, follow).map_err(errno)
    }

    fn chown_handle(&self, handle: Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.file(handle)?.file.set_owner(uid, gid).map_err(errno)
    }

    fn utimens(&self, path: &[u8], atime: SetTime, mtime: SetTime, follow: bool) -> Result<()> {
        self.fs().set_times(path, set_time(atime), set_time(mtime), follow).map_err(errno)
    }

    fn utimens_handle(&self, handle: Handle, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.file(handle)?.file.set_times(set_time(atime), set_time(mtime)).map_err(errno)
    }

    fn truncate(&self, path: &[u8], len: u64) -> Result<()> {
        self.fs().truncate(path, len).map_err(errno)
    }

    fn truncate_handle(&self, handle: Handle, len: u64) -> Result<()> {
        self.file(handle)?.file.set_len(len).map_err(errno)
    }

    fn access(&self, path: &[u8], access: Access, _is_effective: bool) -> Result<()> {
        self.fs().access(path, access.bits()).map_err(errno)
    }

    fn statfs(&self, path: &[u8]) -> Result<Space> {
        let out = self.fs().statfs(path).map_err(errno)?;
        Ok(Space {
            block_size: out.bsize.get().into(),
            blocks: out.blocks.get(),
            blocks_free: out.bfree.get(),
            name_len_max: out.namelen.get().into(),
        })
    }

    fn read(&self, handle: Handle, buf: &mut [u8]) -> Result<usize> {
        self.file(handle)?.file.read(buf).map_err(errno)
    }

    fn write(&self, handle: Handle, data: &[u8]) -> Result<usize> {
        self.file(handle)?.file.write(data).map_err(errno)
    }

    fn read_at(&self, handle: Handle, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file(handle)?.file.read_at(offset, buf).map_err(errno)
    }

    fn write_at(&self, handle: Handle, data: &[u8], offset: u64) -> Result<usize> {
        self.file(handle)?.file.write_at(offset, data).map_err(errno)
    }

    fn seek(&self, handle: Handle, to: SeekFrom) -> Result<u64> {
        let open = self.file(handle)?;
        if let (SeekFrom::Start(cookie), true) = (to, open.file.inode().is_directory()) {
            let mut entries = open.entries.lock();
            let (stream, waiting) = self.stream(&open, &mut entries)?;
            stream.seek(cookie);
            *waiting = None;
            return Ok(cookie);
        }
        let to = match to {
            SeekFrom::Start(offset) => fs::SeekFrom::Start(offset),
            SeekFrom::Current(by) => fs::SeekFrom::Current(by),
            SeekFrom::End(by) => fs::SeekFrom::End(by),
            SeekFrom::Data(offset) => fs::SeekFrom::Data(offset),
            SeekFrom::Hole(offset) => fs::SeekFrom::Hole(offset),
        };
        open.file.seek(to).map_err(errno)
    }

    fn fallocate(&self, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.file(handle)?.file.allocate(mode.bits(), offset, len).map_err(errno)
    }

    fn copy_range(&self, from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        let copied = from.file.copy_to(from_offset, &to.file, to_offset, len as u64);
        copied.map(|copied| copied as usize).map_err(errno)
    }

    fn sync(&self, handle: Handle, is_data_only: bool) -> Result<()> {
        let open = self.file(handle)?;
        if is_data_only { open.file.sync_data() } else { open.file.sync_all() }.map_err(errno)
    }

    fn sync_fs(&self, handle: Handle) -> Result<()> {
        self.file(handle)?;
        self.fs().sync().map_err(errno)
    }

    /// A process that is the guest has no page faults of its own to serve.
    fn map(&self, _: Handle, _: u64, _: usize, _: MapMode) -> Result<Box<dyn Mapping>> {
        Err(Errno::NOSYS)
    }

    fn read_dir(&self, handle: Handle, buf_len: usize) -> Result<Vec<Entry>> {
        let open = self.file(handle)?;
        if !open.file.inode().is_directory() {
            return Err(Errno::NOTDIR);
        }
        let mut entries = open.entries.lock();
        let (stream, waiting) = self.stream(&open, &mut entries)?;
        let (mut left, mut taken) = (buf_len, Vec::new());
        loop {
            let next = match waiting.take() {
                None => self.fs().volume().readdir(&self.caller(), stream).map_err(errno)?,
                some => some,
            };
            let Some(entry) = next else { return Ok(taken) };
            // An inode number, an offset, a length, a type; the name and its NUL.
            let len = (19 + entry.name.len() + 1).next_multiple_of(8);
            if len > left {
                *waiting = Some(entry);
                return if taken.is_empty() { Err(Errno::INVAL) } else { Ok(taken) };
            }
            left -= len;
            let kind = FileType::from_raw_mode(entry.file_type << 12);
            taken.push(Entry { name: entry.name, ino: entry.ino, kind, cookie: entry.cookie });
        }
    }

    fn lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
        let lock = volume::Lock { kind: lock_kind(lock.kind), start: lock.start, len: lock.len, pid: 0 };
        let open = self.file(handle)?;
        open.file.as_open_file().set_lock(&self.caller(), self.owner(owner), &lock, is_waiting).map_err(errno)
    }

    fn query_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
        let wanted = volume::Lock { kind: lock_kind(lock.kind), start: lock.start, len: lock.len, pid: 0 };
        let open = self.file(handle)?;
        let found = open.file.as_open_file().get_lock(&self.caller(), self.owner(owner), &wanted).map_err(errno)?;
        Ok(match found {
            None => (Lock { kind: LockKind::None, ..lock }, 0),
            Some(volume::Lock { kind, start, len, pid }) => {
                let kind = match kind {
                    volume::LockKind::Shared => LockKind::Read,
                    volume::LockKind::Exclusive => LockKind::Write,
                    volume::LockKind::Unlocked => LockKind::None,
                };
                (Lock { kind, start, len }, pid.cast_signed())
            }
        })
    }

    fn flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()> {
        self.file(handle)?.file.flock(lock_kind(kind), is_waiting).map_err(errno)
    }

    fn xattr_set(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags, follow: bool) -> Result<()> {
        self.fs().set_xattr(path, name, value, flags.bits(), follow).map_err(errno)
    }

    fn xattr_get(&self, path: &[u8], name: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        fill(buf, &self.fs().get_xattr(path, name, follow).map_err(errno)?)
    }

    fn xattr_list(&self, path: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        let names = self.fs().list_xattr(path, follow).map_err(errno)?;
        fill(buf, &names.iter().flat_map(|name| [&name[..], b"\0"].concat()).collect::<Vec<_>>())
    }

    fn xattr_remove(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        self.fs().remove_xattr(path, name, follow).map_err(errno)
    }

    fn xattr_set_handle(&self, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let open = self.file(handle)?;
        self.fs().volume().setxattr(&self.caller(), open.file.inode(), name, value, flags.bits(), 0).map_err(errno)
    }

    fn xattr_get_handle(&self, handle: Handle, name: &[u8], buf: &mut [u8]) -> Result<usize> {
        let open = self.file(handle)?;
        self.fs().volume().getxattr(&self.caller(), open.file.inode(), name, buf).map_err(errno)
    }

    fn identity(&self) -> Identity {
        let fs = self.fs();
        let Credentials { uid, gid, groups, .. } = fs.credentials().clone();
        Identity { uid, gid, groups }
    }

    fn umask(&self, mask: u32) -> u32 {
        let mut fs = self.fs.lock();
        let credentials = fs.credentials().clone();
        let before = credentials.umask;
        *fs = fs.with_credentials(Credentials { umask: mask & 0o777, ..credentials });
        before
    }

    fn process(&self, who: &Identity, body: &mut (dyn FnMut(&dyn Client) + Send)) -> Result<()> {
        let current = self.fs().credentials().clone();
        let is_change = (who.uid, who.gid, &who.groups) != (current.uid, current.gid, &current.groups);
        if is_change && current.uid != 0 {
            return Err(Errno::PERM);
        }
        let lock_owner = new_lock_owner();
        let credentials = Credentials { uid: who.uid, gid: who.gid, groups: who.groups.clone(), lock_owner, ..current };
        let fs = Mutex::new(self.fs().with_credentials(credentials));
        let child = Self { fs, files: Mutex::new(self.files.lock().clone()), next: Arc::clone(&self.next) };
        body(&child);
        child.exit();
        Ok(())
    }

    fn descriptor(&self, _: Handle) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_kernel(&self) -> bool {
        false
    }
}
