//! A [`Client`] as cases like to use it: paths of any kind of bytes, files that close themselves, whole files at once.

use std::os::fd::BorrowedFd;

use crate::client::{
    Access, Attr, Client, Entry, Errno, FallocateFlags, FileType, Handle, Identity, Lock, LockKind, LockOwner, MapMode,
    Mapping, OFlags, RenameFlags, Result, SeekFrom, SetTime, Space, Time, XattrFlags,
};
use crate::stop::Stop;

/// Who an ordinary user is, when the cases run as root.
pub const ORDINARY: u32 = 1000;

/// One process's view of the directory of a case.
#[derive(Clone, Copy)]
pub struct Fs<'c> {
    client: &'c dyn Client,
}

/// An open file or directory, closed when dropped.
pub struct File<'c> {
    client: &'c dyn Client,
    handle: Handle,
    is_owned: bool,
}

/// Bytes, most often a name.
pub trait Bytes: AsRef<[u8]> {}
impl<T: AsRef<[u8]> + ?Sized> Bytes for T {}

#[expect(missing_docs, reason = "each method is the system call of its name")]
impl<'c> Fs<'c> {
    pub fn new(client: &'c dyn Client) -> Self {
        Self { client }
    }

    pub fn open_mode(&self, path: impl Bytes, flags: OFlags, mode: u32) -> Result<File<'c>> {
        let handle = self.client.open(path.as_ref(), flags, mode)?;
        Ok(File { client: self.client, handle, is_owned: true })
    }

    pub fn open(&self, path: impl Bytes, flags: OFlags) -> Result<File<'c>> {
        self.open_mode(path, flags, 0o644)
    }

    /// A new file, open for reading and writing.
    pub fn create(&self, path: impl Bytes) -> Result<File<'c>> {
        self.open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// A new file with these bytes.
    pub fn put(&self, path: impl Bytes, data: impl Bytes) -> Result<()> {
        let file = self.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all_at(data, 0)
    }

    /// A new empty file with these permissions, whatever the mask.
    pub fn make(&self, path: impl Bytes, mode: u32) -> Result<()> {
        self.create(path.as_ref())?;
        self.chmod(path, mode)
    }

    /// The whole of a file.
    pub fn get(&self, path: impl Bytes) -> Result<Vec<u8>> {
        self.open(path, OFlags::RDONLY)?.read_all()
    }

    pub fn mkdir(&self, path: impl Bytes) -> Result<()> {
        self.mkdir_mode(path, 0o755)
    }

    pub fn mkdir_mode(&self, path: impl Bytes, mode: u32) -> Result<()> {
        self.client.mkdir(path.as_ref(), mode)
    }

    pub fn mknod(&self, path: impl Bytes, kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        self.client.mknod(path.as_ref(), kind, mode, device)
    }

    pub fn symlink(&self, target: impl Bytes, path: impl Bytes) -> Result<()> {
        self.client.symlink(target.as_ref(), path.as_ref())
    }

    pub fn readlink(&self, path: impl Bytes) -> Result<Vec<u8>> {
        let mut buf = vec![0; 8192];
        let len = self.client.readlink(path.as_ref(), &mut buf)?;
        buf.truncate(len);
        Ok(buf)
    }

    pub fn readlink_into(&self, path: impl Bytes, buf: &mut [u8]) -> Result<usize> {
        self.client.readlink(path.as_ref(), buf)
    }

    pub fn link(&self, old: impl Bytes, new: impl Bytes) -> Result<()> {
        self.client.link(old.as_ref(), new.as_ref(), false)
    }

    pub fn link_following(&self, old: impl Bytes, new: impl Bytes) -> Result<()> {
        self.client.link(old.as_ref(), new.as_ref(), true)
    }

    pub fn unlink(&self, path: impl Bytes) -> Result<()> {
        self.client.unlink(path.as_ref())
    }

    pub fn rmdir(&self, path: impl Bytes) -> Result<()> {
        self.client.rmdir(path.as_ref())
    }

    pub fn rename(&self, old: impl Bytes, new: impl Bytes) -> Result<()> {
        self.rename_with(old, new, RenameFlags::empty())
    }

    pub fn rename_with(&self, old: impl Bytes, new: impl Bytes, flags: RenameFlags) -> Result<()> {
        self.client.rename(old.as_ref(), new.as_ref(), flags)
    }

    pub fn stat(&self, path: impl Bytes) -> Result<Attr> {
        self.client.stat(path.as_ref(), true)
    }

    pub fn lstat(&self, path: impl Bytes) -> Result<Attr> {
        self.client.stat(path.as_ref(), false)
    }

    /// Whether the name is there, symlinks not followed.
    pub fn exists(&self, path: impl Bytes) -> Result<bool> {
        match self.lstat(path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub fn chmod(&self, path: impl Bytes, mode: u32) -> Result<()> {
        self.client.chmod(path.as_ref(), mode)
    }

    pub fn chown(&self, path: impl Bytes, uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>) -> Result<()> {
        self.client.chown(path.as_ref(), uid.into(), gid.into(), true)
    }

    pub fn lchown(&self, path: impl Bytes, uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>) -> Result<()> {
        self.client.chown(path.as_ref(), uid.into(), gid.into(), false)
    }

    pub fn utimens(&self, path: impl Bytes, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.client.utimens(path.as_ref(), atime, mtime, true)
    }

    pub fn lutimens(&self, path: impl Bytes, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.client.utimens(path.as_ref(), atime, mtime, false)
    }

    pub fn truncate(&self, path: impl Bytes, len: u64) -> Result<()> {
        self.client.truncate(path.as_ref(), len)
    }

    pub fn access(&self, path: impl Bytes, access: Access) -> Result<()> {
        self.client.access(path.as_ref(), access, false)
    }

    pub fn access_effective(&self, path: impl Bytes, access: Access) -> Result<()> {
        self.client.access(path.as_ref(), access, true)
    }

    pub fn statfs(&self, path: impl Bytes) -> Result<Space> {
        self.client.statfs(path.as_ref())
    }

    pub fn xattr_set(&self, path: impl Bytes, name: impl Bytes, value: impl Bytes) -> Result<()> {
        self.xattr_set_with(path, name, value, XattrFlags::empty())
    }

    pub fn xattr_set_with(
        &self,
        path: impl Bytes,
        name: impl Bytes,
        value: impl Bytes,
        flags: XattrFlags,
    ) -> Result<()> {
        self.client.xattr_set(path.as_ref(), name.as_ref(), value.as_ref(), flags, true)
    }

    pub fn lxattr_set(&self, path: impl Bytes, name: impl Bytes, value: impl Bytes) -> Result<()> {
        self.client.xattr_set(path.as_ref(), name.as_ref(), value.as_ref(), XattrFlags::empty(), false)
    }

    pub fn xattr_get(&self, path: impl Bytes, name: impl Bytes) -> Result<Vec<u8>> {
        let mut buf = vec![0; 65536];
        let len = self.client.xattr_get(path.as_ref(), name.as_ref(), &mut buf, true)?;
        buf.truncate(len);
        Ok(buf)
    }

    pub fn xattr_get_into(&self, path: impl Bytes, name: impl Bytes, buf: &mut [u8]) -> Result<usize> {
        self.client.xattr_get(path.as_ref(), name.as_ref(), buf, true)
    }

    pub fn lxattr_get(&self, path: impl Bytes, name: impl Bytes) -> Result<Vec<u8>> {
        let mut buf = vec![0; 65536];
        let len = self.client.xattr_get(path.as_ref(), name.as_ref(), &mut buf, false)?;
        buf.truncate(len);
        Ok(buf)
    }

    pub fn xattr_list_into(&self, path: impl Bytes, buf: &mut [u8]) -> Result<usize> {
        self.client.xattr_list(path.as_ref(), buf, true)
    }

    /// Names in the order of the alphabet, without those that a security module adds by itself.
    pub fn xattr_list(&self, path: impl Bytes) -> Result<Vec<String>> {
        let mut buf = vec![0; 65536];
        let len = self.xattr_list_into(path, &mut buf)?;
        let names = buf[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.retain(|name| name != "security.selinux");
        names.sort();
        Ok(names)
    }

    pub fn xattr_remove(&self, path: impl Bytes, name: impl Bytes) -> Result<()> {
        self.client.xattr_remove(path.as_ref(), name.as_ref(), true)
    }

    /// Every entry but `.` and `..`, in the order of the stream.
    pub fn entries(&self, path: impl Bytes) -> Result<Vec<Entry>> {
        let mut entries = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?.entries()?;
        entries.retain(|entry| entry.name != b"." && entry.name != b"..");
        Ok(entries)
    }

    /// The names of a directory in the order of the alphabet, without `.` and `..`.
    pub fn names(&self, path: impl Bytes) -> Result<Vec<String>> {
        let entries = self.entries(path)?;
        let mut names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.sort();
        Ok(names)
    }

    pub fn identity(&self) -> Identity {
        self.client.identity()
    }

    pub fn is_root(&self) -> bool {
        self.identity().uid == 0
    }

    pub fn umask(&self, mask: u32) -> u32 {
        self.client.umask(mask)
    }

    /// Runs `body` as another process of the same user.
    pub fn other_process<T: Send>(
        &self,
        body: impl FnOnce(&Fs<'_>) -> std::result::Result<T, Stop> + Send,
    ) -> std::result::Result<T, Stop> {
        self.process(&self.identity(), body)
    }

    /// Runs `body` as a process of an ordinary user: this one, or user 1000 when this one is root.
    pub fn ordinary<T: Send>(
        &self,
        body: impl FnOnce(&Fs<'_>) -> std::result::Result<T, Stop> + Send,
    ) -> std::result::Result<T, Stop> {
        if self.is_root() { self.user(ORDINARY, ORDINARY, &[], body) } else { self.other_process(body) }
    }

    /// Runs `body` as a process of another user; root's privilege.
    pub fn user<T: Send>(
        &self,
        uid: u32,
        gid: u32,
        groups: &[u32],
        body: impl FnOnce(&Fs<'_>) -> std::result::Result<T, Stop> + Send,
    ) -> std::result::Result<T, Stop> {
        self.process(&Identity { uid, gid, groups: groups.to_vec() }, body)
    }

    fn process<T: Send>(
        &self,
        who: &Identity,
        body: impl FnOnce(&Fs<'_>) -> std::result::Result<T, Stop> + Send,
    ) -> std::result::Result<T, Stop> {
        let mut body = Some(body);
        let mut outcome = None;
        let run = self.client.process(who, &mut |client| {
            if let Some(body) = body.take() {
                outcome = Some(body(&Fs::new(client)));
            }
        });
        match (run, outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(errno), _) => Err(Stop::skip(format!("a process of user {} cannot be had: {errno:?}", who.uid))),
            (Ok(()), None) => Err(Stop::fail("the other process ended early")),
        }
    }

    /// Skips the case unless its directory is this thread's current directory, in a kernel.
    pub fn kernel(&self) -> std::result::Result<(), Stop> {
        if self.client.is_kernel() { Ok(()) } else { Err(Stop::skip("needs a client that is a kernel's mount")) }
    }

    /// Skips the case unless this process is root's.
    pub fn require_root(&self) -> std::result::Result<(), Stop> {
        if self.is_root() { Ok(()) } else { Err(Stop::skip("needs root")) }
    }

    /// A file of another process, which this one inherited.
    pub fn inherited(&self, file: &File<'_>) -> File<'c> {
        File { client: self.client, handle: file.handle, is_owned: false }
    }

    /// Waits until a change made now gets a later time than `time` on the file system's own clock.
    pub fn wait_past(&self, time: Time) -> Result<()> {
        let probe = format!(".clock-{:?}", std::thread::current().id());
        let file = self.open(&probe, OFlags::RDWR | OFlags::CREATE)?;
        loop {
            file.write_at("tick", 0)?;
            self.utimens(&probe, SetTime::Now, SetTime::Now)?;
            if file.stat()?.ctime > time {
                return self.unlink(&probe);
            }
            std::thread::yield_now();
        }
    }
}

#[expect(missing_docs, reason = "each method is the system call of its name")]
impl File<'_> {
    pub fn read(&self, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let len = self.client.read(self.handle, &mut buf)?;
        buf.truncate(len);
        Ok(buf)
    }

    pub fn write(&self, data: impl Bytes) -> Result<usize> {
        self.client.write(self.handle, data.as_ref())
    }

    pub fn read_at(&self, len: usize, offset: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0; len];
        let len = self.client.read_at(self.handle, &mut buf, offset)?;
        buf.truncate(len);
        Ok(buf)
    }

    pub fn read_all(&self) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        loop {
            let more = self.read_at(1 << 16, data.len() as u64)?;
            if more.is_empty() {
                return Ok(data);
            }
            data.extend(more);
        }
    }

    pub fn write_at(&self, data: impl Bytes, offset: u64) -> Result<usize> {
        self.client.write_at(self.handle, data.as_ref(), offset)
    }

    pub fn write_all_at(&self, data: impl Bytes, offset: u64) -> Result<()> {
        let data = data.as_ref();
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        self.client.seek(self.handle, to)
    }

    pub fn fallocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.client.fallocate(self.handle, mode, offset, len)
    }

    pub fn copy_range(&self, offset: u64, to: &File<'_>, to_offset: u64, len: usize) -> Result<usize> {
        self.client.copy_range(self.handle, offset, to.handle, to_offset, len)
    }

    pub fn sync(&self) -> Result<()> {
        self.client.sync(self.handle, false)
    }

    pub fn sync_data(&self) -> Result<()> {
        self.client.sync(self.handle, true)
    }

    pub fn sync_fs(&self) -> Result<()> {
        self.client.sync_fs(self.handle)
    }

    pub fn map(&self, offset: u64, len: usize, mode: MapMode) -> Result<Box<dyn Mapping>> {
        self.client.map(self.handle, offset, len, mode)
    }

    pub fn stat(&self) -> Result<Attr> {
        self.client.stat_handle(self.handle)
    }

    pub fn chmod(&self, mode: u32) -> Result<()> {
        self.client.chmod_handle(self.handle, mode)
    }

    pub fn chown(&self, uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>) -> Result<()> {
        self.client.chown_handle(self.handle, uid.into(), gid.into())
    }

    pub fn utimens(&self, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.client.utimens_handle(self.handle, atime, mtime)
    }

    pub fn truncate(&self, len: u64) -> Result<()> {
        self.client.truncate_handle(self.handle, len)
    }

    pub fn link(&self, new: impl Bytes) -> Result<()> {
        self.client.link_handle(self.handle, new.as_ref())
    }

    pub fn read_dir(&self, buf_len: usize) -> Result<Vec<Entry>> {
        self.client.read_dir(self.handle, buf_len)
    }

    /// Every entry from here to the end of the stream.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        loop {
            let more = self.read_dir(32768)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    pub fn lock(&self, owner: LockOwner, kind: LockKind, start: u64, len: u64) -> Result<()> {
        self.client.lock(self.handle, owner, Lock { kind, start, len }, false)
    }

    pub fn lock_waiting(&self, owner: LockOwner, kind: LockKind, start: u64, len: u64) -> Result<()> {
        self.client.lock(self.handle, owner, Lock { kind, start, len }, true)
    }

    pub fn query_lock(&self, owner: LockOwner, kind: LockKind, start: u64, len: u64) -> Result<(Lock, i32)> {
        self.client.query_lock(self.handle, owner, Lock { kind, start, len })
    }

    pub fn flock(&self, kind: LockKind) -> Result<()> {
        self.client.flock(self.handle, kind, false)
    }

    pub fn flock_waiting(&self, kind: LockKind) -> Result<()> {
        self.client.flock(self.handle, kind, true)
    }

    pub fn xattr_set(&self, name: impl Bytes, value: impl Bytes) -> Result<()> {
        self.client.xattr_set_handle(self.handle, name.as_ref(), value.as_ref(), XattrFlags::empty())
    }

    pub fn xattr_get(&self, name: impl Bytes) -> Result<Vec<u8>> {
        let mut buf = vec![0; 65536];
        let len = self.client.xattr_get_handle(self.handle, name.as_ref(), &mut buf)?;
        buf.truncate(len);
        Ok(buf)
    }

    /// Closes and tells what the file system says to that.
    pub fn close(mut self) -> Result<()> {
        self.is_owned = false;
        self.client.close(self.handle)
    }

    /// The descriptor, for what only a kernel does; skips the case on another client.
    pub fn descriptor(&self) -> std::result::Result<BorrowedFd<'_>, Stop> {
        let descriptor = self.client.descriptor(self.handle);
        descriptor.ok_or_else(|| Stop::skip("needs a client whose handles are descriptors"))
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        if self.is_owned {
            // What a close may answer is asked by `close`.
            let _ = self.client.close(self.handle);
        }
    }
}
