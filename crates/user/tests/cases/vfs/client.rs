//! The process as the cases know a client.

use std::os::fd::BorrowedFd;

use transom_conformance::client::{
    Access, Attr, Client, Entry, Errno, FallocateFlags, FileType, Handle, Identity, Lock, LockKind, LockOwner, MapMode,
    Mapping, OFlags, RenameFlags, Result, SeekFrom, SetTime, Space, XattrFlags,
};

use super::{errno::from_guest, process::Process};

impl Client for Process<'_> {
    fn open(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        self.open_path(path, flags, mode)
    }

    fn close(&self, handle: Handle) -> Result<()> {
        self.close_file(handle)
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        self.make_directory(path, mode)
    }

    fn mknod(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        self.make_node(path, kind, mode, device)
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.make_symlink(target, path)
    }

    fn readlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        self.read_symlink(path, buf)
    }

    fn link(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()> {
        self.link_path(old, new, follow)
    }

    fn link_handle(&self, handle: Handle, new: &[u8]) -> Result<()> {
        self.link_open(handle, new)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.remove_file(path)
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.remove_directory(path)
    }

    fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()> {
        self.rename_path(old, new, flags)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let found = self.find(path, follow)?;
        self.told(found.node.id, &found.attr)
    }

    fn stat_handle(&self, handle: Handle) -> Result<Attr> {
        let (node, attr) = self.attr_of(handle)?;
        self.told(node, &attr)
    }

    fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        let found = self.find(path, true)?;
        self.change_mode(found.node.id, &found.attr, mode)
    }

    fn chmod_handle(&self, handle: Handle, mode: u32) -> Result<()> {
        self.usable(handle)?;
        let (node, attr) = self.attr_of(handle)?;
        self.change_mode(node, &attr, mode)
    }

    fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        let found = self.find(path, follow)?;
        self.change_owner(found.node.id, &found.attr, uid, gid)
    }

    fn chown_handle(&self, handle: Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.usable(handle)?;
        let (node, attr) = self.attr_of(handle)?;
        self.change_owner(node, &attr, uid, gid)
    }

    fn utimens(&self, path: &[u8], atime: SetTime, mtime: SetTime, follow: bool) -> Result<()> {
        let found = self.find(path, follow)?;
        self.change_times(found.node.id, &found.attr, atime, mtime)
    }

    fn utimens_handle(&self, handle: Handle, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.usable(handle)?;
        let (node, attr) = self.attr_of(handle)?;
        self.change_times(node, &attr, atime, mtime)
    }

    fn truncate(&self, path: &[u8], len: u64) -> Result<()> {
        self.truncate_path(path, len)
    }

    fn truncate_handle(&self, handle: Handle, len: u64) -> Result<()> {
        if len > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        self.usable(handle)?.truncate(self, len)
    }

    fn access(&self, path: &[u8], access: Access, _is_effective: bool) -> Result<()> {
        self.may(path, access)
    }

    fn statfs(&self, path: &[u8]) -> Result<Space> {
        self.space(path)
    }

    fn read(&self, handle: Handle, buf: &mut [u8]) -> Result<usize> {
        self.file(handle)?.read(self, buf)
    }

    fn write(&self, handle: Handle, data: &[u8]) -> Result<usize> {
        self.file(handle)?.write(self, data)
    }

    fn read_at(&self, handle: Handle, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file(handle)?.read_at(self, buf, offset)
    }

    fn write_at(&self, handle: Handle, data: &[u8], offset: u64) -> Result<usize> {
        self.file(handle)?.write_at(self, data, offset)
    }

    fn seek(&self, handle: Handle, to: SeekFrom) -> Result<u64> {
        self.file(handle)?.seek(self, to)
    }

    fn fallocate(&self, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        let file = self.file(handle)?;
        let fh = file.for_writing()?;
        if len == 0 || offset > i64::MAX as u64 || len > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        if offset + len > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        let attr = file.attr(self)?;
        self.drop_set_id(file.node.id, &attr)?;
        let done = self.vfs.session.fallocate(&self.caller(), file.node.id, fh, offset, len, mode.bits());
        done.map_err(from_guest)
    }

    fn copy_range(&self, from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        let (from_fh, to_fh) = (from.for_reading()?, to.for_writing()?);
        if from.is_directory || to.is_directory {
            return Err(Errno::ISDIR);
        }
        if to.flags.contains(OFlags::APPEND) {
            return Err(Errno::BADF);
        }
        let (source, target) = ((from.node.id, from_fh, from_offset), (to.node.id, to_fh, to_offset));
        let copied = self.vfs.session.copy_file_range(&self.caller(), source, target, len as u64, 0);
        copied.map(|copied| copied as usize).map_err(from_guest)
    }

    fn sync(&self, handle: Handle, is_data_only: bool) -> Result<()> {
        let file = self.usable(handle)?;
        let (session, caller, fh) = (&self.vfs.session, self.caller(), file.fh()?);
        let flags = u32::from(is_data_only);
        let done = if file.is_directory {
            session.fsyncdir(&caller, file.node.id, fh, flags)
        } else {
            session.fsync(&caller, file.node.id, fh, flags)
        };
        done.map_err(from_guest)
    }

    fn sync_fs(&self, handle: Handle) -> Result<()> {
        let file = self.usable(handle)?;
        self.vfs.session.syncfs(&self.caller(), file.node.id).map_err(from_guest)
    }

    /// A process that is the guest has no page faults of its own to serve.
    fn map(&self, _: Handle, _: u64, _: usize, _: MapMode) -> Result<Box<dyn Mapping>> {
        Err(Errno::NOSYS)
    }

    fn read_dir(&self, handle: Handle, buf_len: usize) -> Result<Vec<Entry>> {
        self.usable(handle)?.entries(self, buf_len)
    }

    fn lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
        self.set_lock(handle, owner, lock, is_waiting)
    }

    fn query_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
        self.find_lock(handle, owner, lock)
    }

    fn flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()> {
        self.set_flock(handle, kind, is_waiting)
    }

    fn xattr_set(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags, follow: bool) -> Result<()> {
        let found = self.find(path, follow)?;
        self.set_xattr(found.node.id, &found.attr, name, value, flags.bits())
    }

    fn xattr_get(&self, path: &[u8], name: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        let found = self.find(path, follow)?;
        self.get_xattr(found.node.id, &found.attr, name, buf)
    }

    fn xattr_list(&self, path: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        let found = self.find(path, follow)?;
        self.list_xattr(found.node.id, buf)
    }

    fn xattr_remove(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        let found = self.find(path, follow)?;
        self.remove_xattr(found.node.id, &found.attr, name)
    }

    fn xattr_set_handle(&self, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.usable(handle)?;
        let (node, attr) = self.attr_of(handle)?;
        self.set_xattr(node, &attr, name, value, flags.bits())
    }

    fn xattr_get_handle(&self, handle: Handle, name: &[u8], buf: &mut [u8]) -> Result<usize> {
        self.usable(handle)?;
        let (node, attr) = self.attr_of(handle)?;
        self.get_xattr(node, &attr, name, buf)
    }

    fn identity(&self) -> Identity {
        self.who.clone()
    }

    fn umask(&self, mask: u32) -> u32 {
        self.set_umask(mask)
    }

    fn process(&self, who: &Identity, body: &mut (dyn FnMut(&dyn Client) + Send)) -> Result<()> {
        let is_change = who.uid != self.who.uid || who.gid != self.who.gid || who.groups != self.who.groups;
        if is_change && self.who.uid != 0 {
            return Err(Errno::PERM);
        }
        let child = self.child(who);
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
