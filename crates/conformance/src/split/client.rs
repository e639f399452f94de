//! Which of the two clients each call goes to.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use super::Split;
use super::looks::{filled, put, same};
use crate::client::{
    Access, Attr, Client, Entry, FallocateFlags, FileType, Handle, Identity, Lock, LockKind, LockOwner, MapMode,
    Mapping, OFlags, RenameFlags, Result, SeekFrom, SetTime, Space, XattrFlags,
};

/// What an open does beyond opening.
const CHANGES: OFlags = OFlags::CREATE.union(OFlags::TRUNC).union(OFlags::TMPFILE);

impl Client for Split<'_> {
    fn open(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        let is_read_only = flags & OFlags::RWMODE == OFlags::RDONLY && !flags.intersects(CHANGES);
        if is_read_only || flags.contains(OFlags::PATH) {
            return self.open_to_look(path, flags);
        }
        self.open_to_change(path, flags, mode)
    }

    fn close(&self, handle: Handle) -> Result<()> {
        let both = self.files.lock().expect("no holder of this lock panics").remove(handle)?;
        if let Some(looking) = both.looking {
            self.looking.close(looking)?;
        }
        self.acting.close(both.acting)
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        self.look_before(path);
        self.acting.mkdir(path, mode)
    }

    fn mknod(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        self.look_before(path);
        self.acting.mknod(path, kind, mode, device)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.look_before(path);
        self.acting.symlink(target, path)
    }

    fn readlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        let seen = self.seen(path);
        let looking = || filled(buf.len(), |bytes| self.looking.readlink(&seen, bytes));
        let acting = || filled(buf.len(), |bytes| self.acting.readlink(path, bytes));
        let found = self.settled(looking, acting, PartialEq::eq)?;
        Ok(put(buf, found))
    }

    fn link(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()> {
        self.look_before(old);
        self.look_before(new);
        self.acting.link(old, new, follow)
    }

    fn link_handle(&self, handle: Handle, new: &[u8]) -> Result<()> {
        self.look_before(new);
        self.acting.link_handle(self.look_before_at(handle)?, new)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.look_before(path);
        self.acting.unlink(path)
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.look_before(path);
        self.acting.rmdir(path)
    }

    fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()> {
        self.look_before(old);
        self.look_before(new);
        self.acting.rename(old, new, flags)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let seen = self.seen(path);
        self.settled(|| self.looking.stat(&seen, follow), || self.acting.stat(path, follow), same)
    }

    fn stat_handle(&self, handle: Handle) -> Result<Attr> {
        let both = self.file(handle)?;
        let Some(looking) = both.looking else { return self.acting.stat_handle(both.acting) };
        self.settled(|| self.looking.stat_handle(looking), || self.acting.stat_handle(both.acting), same)
    }

    fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        self.look_before(path);
        self.acting.chmod(path, mode)
    }

    fn chmod_handle(&self, handle: Handle, mode: u32) -> Result<()> {
        self.acting.chmod_handle(self.look_before_at(handle)?, mode)
    }

    fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        self.look_before(path);
        self.acting.chown(path, uid, gid, follow)
    }

    fn chown_handle(&self, handle: Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.acting.chown_handle(self.look_before_at(handle)?, uid, gid)
    }

    fn utimens(&self, path: &[u8], atime: SetTime, mtime: SetTime, follow: bool) -> Result<()> {
        self.look_before(path);
        self.acting.utimens(path, atime, mtime, follow)
    }

    fn utimens_handle(&self, handle: Handle, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.acting.utimens_handle(self.look_before_at(handle)?, atime, mtime)
    }

    fn truncate(&self, path: &[u8], len: u64) -> Result<()> {
        self.look_before(path);
        self.acting.truncate(path, len)
    }

    fn truncate_handle(&self, handle: Handle, len: u64) -> Result<()> {
        self.acting.truncate_handle(self.look_before_at(handle)?, len)
    }

    fn access(&self, path: &[u8], access: Access, is_effective: bool) -> Result<()> {
        let seen = self.seen(path);
        let acting = || self.acting.access(path, access, is_effective);
        self.settled(|| self.looking.access(&seen, access, is_effective), acting, PartialEq::eq)
    }

    fn statfs(&self, path: &[u8]) -> Result<Space> {
        self.settled(|| self.looking.statfs(&self.seen(path)), || self.acting.statfs(path), |_, _| true)
    }

    fn read(&self, handle: Handle, buf: &mut [u8]) -> Result<usize> {
        let both = self.file(handle)?;
        match both.looking.filter(|_| !both.may_write) {
            Some(looking) => self.looking.read(looking, buf),
            None => self.acting.read(both.acting, buf),
        }
    }

    fn write(&self, handle: Handle, data: &[u8]) -> Result<usize> {
        self.acting.write(self.look_before_at(handle)?, data)
    }

    fn read_at(&self, handle: Handle, buf: &mut [u8], offset: u64) -> Result<usize> {
        let both = self.file(handle)?;
        let Some(looking) = both.looking.filter(|_| both.may_read) else {
            return self.acting.read_at(both.acting, buf, offset);
        };
        if self.patience.is_none() {
            return self.looking.read_at(looking, buf, offset);
        }
        let found = self.settled(
            || filled(buf.len(), |bytes| self.looking.read_at(looking, bytes, offset)),
            || filled(buf.len(), |bytes| self.acting.read_at(both.acting, bytes, offset)),
            PartialEq::eq,
        )?;
        Ok(put(buf, found))
    }

    fn write_at(&self, handle: Handle, data: &[u8], offset: u64) -> Result<usize> {
        self.acting.write_at(self.look_before_at(handle)?, data, offset)
    }

    fn seek(&self, handle: Handle, to: SeekFrom) -> Result<u64> {
        let both = self.file(handle)?;
        match both.looking.filter(|_| !both.may_write) {
            Some(looking) => self.looking.seek(looking, to),
            None => self.acting.seek(both.acting, to),
        }
    }

    fn fallocate(&self, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.acting.fallocate(self.look_before_at(handle)?, mode, offset, len)
    }

    fn copy_range(&self, from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize> {
        let (from, to) = (self.look_before_at(from)?, self.look_before_at(to)?);
        self.acting.copy_range(from, from_offset, to, to_offset, len)
    }

    fn sync(&self, handle: Handle, is_data_only: bool) -> Result<()> {
        self.acting.sync(self.file(handle)?.acting, is_data_only)
    }

    fn sync_fs(&self, handle: Handle) -> Result<()> {
        self.acting.sync_fs(self.file(handle)?.acting)
    }

    /// What is stored to a mapping is complete for nobody until it is written back: one client keeps the file.
    fn map(&self, handle: Handle, offset: u64, len: usize, mode: MapMode) -> Result<Box<dyn Mapping>> {
        let mapping = self.acting.map(self.file(handle)?.acting, offset, len, mode)?;
        let looking = self.files.lock().expect("no holder of this lock panics").keep_acting(handle);
        if let Some(looking) = looking {
            self.looking.close(looking)?;
        }
        Ok(mapping)
    }

    fn read_dir(&self, handle: Handle, buf_len: usize) -> Result<Vec<Entry>> {
        let both = self.file(handle)?;
        match both.looking {
            Some(looking) => self.looking.read_dir(looking, buf_len),
            None => self.acting.read_dir(both.acting, buf_len),
        }
    }

    fn lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
        self.acting.lock(self.file(handle)?.acting, owner, lock, is_waiting)
    }

    fn query_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
        self.acting.query_lock(self.file(handle)?.acting, owner, lock)
    }

    fn flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()> {
        self.acting.flock(self.file(handle)?.acting, kind, is_waiting)
    }

    fn xattr_set(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags, follow: bool) -> Result<()> {
        self.look_before(path);
        self.acting.xattr_set(path, name, value, flags, follow)
    }

    fn xattr_get(&self, path: &[u8], name: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        let seen = self.seen(path);
        let looking = || filled(buf.len(), |bytes| self.looking.xattr_get(&seen, name, bytes, follow));
        let acting = || filled(buf.len(), |bytes| self.acting.xattr_get(path, name, bytes, follow));
        let found = self.settled(looking, acting, PartialEq::eq)?;
        Ok(put(buf, found))
    }

    fn xattr_list(&self, path: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        let seen = self.seen(path);
        let looking = || filled(buf.len(), |bytes| self.looking.xattr_list(&seen, bytes, follow));
        let acting = || filled(buf.len(), |bytes| self.acting.xattr_list(path, bytes, follow));
        let found = self.settled(looking, acting, PartialEq::eq)?;
        Ok(put(buf, found))
    }

    fn xattr_remove(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        self.look_before(path);
        self.acting.xattr_remove(path, name, follow)
    }

    fn xattr_set_handle(&self, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.acting.xattr_set_handle(self.look_before_at(handle)?, name, value, flags)
    }

    fn xattr_get_handle(&self, handle: Handle, name: &[u8], buf: &mut [u8]) -> Result<usize> {
        let both = self.file(handle)?;
        let Some(looking) = both.looking else {
            return self.acting.xattr_get_handle(both.acting, name, buf);
        };
        let looking = || filled(buf.len(), |bytes| self.looking.xattr_get_handle(looking, name, bytes));
        let acting = || filled(buf.len(), |bytes| self.acting.xattr_get_handle(both.acting, name, bytes));
        let found = self.settled(looking, acting, PartialEq::eq)?;
        Ok(put(buf, found))
    }

    fn identity(&self) -> Identity {
        self.acting.identity()
    }

    fn umask(&self, mask: u32) -> u32 {
        let before = self.acting.umask(mask);
        // Where both are one process this sets the same mask again.
        self.looking.umask(mask);
        before
    }

    fn process(&self, who: &Identity, body: &mut (dyn FnMut(&dyn Client) + Send)) -> Result<()> {
        let Self { beneath, patience, .. } = *self;
        let files = self.files.lock().expect("no holder of this lock panics").clone();
        let looking = self.looking;
        let mut result = Ok(());
        self.acting.process(who, &mut |acting| {
            result = looking.process(who, &mut |looking| {
                let files = Mutex::new(files.clone());
                body(&Split { acting, looking, beneath, patience, files });
            });
        })?;
        result
    }

    fn descriptor(&self, handle: Handle) -> Option<BorrowedFd<'_>> {
        self.acting.descriptor(self.file(handle).ok()?.acting)
    }

    fn is_kernel(&self) -> bool {
        self.acting.is_kernel()
    }
}
