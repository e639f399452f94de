//! The client that is this machine's kernel: each method one system call, on paths relative to the current directory.
//!
//! Another process is a thread with its own descriptor table, current directory, mask and credentials: the kernel
//! tells lock owners apart by their tables and checks rights by the thread, so that it takes no fork. [`raw`] holds
//! what needs `unsafe`.

use std::os::fd::{BorrowedFd, IntoRawFd};

use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, RawDir, Statx, StatxFlags, StatxTimestamp, Timestamps, Uid};

use crate::client::{
    Access, Attr, Client, Entry, Errno, FallocateFlags, FileType, Handle, Identity, Lock, LockKind, LockOwner, MapMode,
    Mapping, OFlags, RenameFlags, Result, SeekFrom, SetTime, Space, Time, XattrFlags,
};

pub mod child;
pub mod ioctl;
mod locks;
mod mapping;
mod raw;
pub mod signals;

pub use raw::own_descriptors;

/// The kernel of this machine, in the current directory of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syscalls;

fn fd(handle: Handle) -> BorrowedFd<'static> {
    raw::borrow(handle.0 as i32)
}

fn no_follow(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_retain(mode)
}

fn owners(uid: Option<u32>, gid: Option<u32>) -> (Option<Uid>, Option<Gid>) {
    (uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

impl Client for Syscalls {
    fn open(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, mode_of(mode))?;
        Ok(Handle(file.into_raw_fd() as u64))
    }

    fn close(&self, handle: Handle) -> Result<()> {
        raw::close(handle.0 as i32)
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> Result<()> {
        rustix::fs::mkdir(path, mode_of(mode))
    }

    fn mknod(&self, path: &[u8], kind: FileType, mode: u32, device: (u32, u32)) -> Result<()> {
        rustix::fs::mknodat(CWD, path, kind, mode_of(mode), rustix::fs::makedev(device.0, device.1))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        rustix::fs::symlink(target, path)
    }

    fn readlink(&self, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        rustix::fs::readlinkat_raw(CWD, path, buf)
    }

    fn link(&self, old: &[u8], new: &[u8], follow: bool) -> Result<()> {
        let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        rustix::fs::linkat(CWD, old, CWD, new, flags)
    }

    fn link_handle(&self, handle: Handle, new: &[u8]) -> Result<()> {
        let old = format!("/proc/thread-self/fd/{}", handle.0);
        match rustix::fs::linkat(fd(handle), "", CWD, new, AtFlags::EMPTY_PATH) {
            // Without CAP_DAC_READ_SEARCH the empty path is refused, and the way of ordinary users is `/proc`.
            Err(Errno::NOENT) if !raw::may_link_by_descriptor() => {
                rustix::fs::linkat(CWD, old, CWD, new, AtFlags::SYMLINK_FOLLOW)
            }
            other => other,
        }
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(CWD, path, AtFlags::empty())
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)
    }

    fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> Result<()> {
        rustix::fs::renameat_with(CWD, old, CWD, new, flags)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        Ok(attr(&rustix::fs::statx(CWD, path, no_follow(follow), mask)?))
    }

    fn stat_handle(&self, handle: Handle) -> Result<Attr> {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        Ok(attr(&rustix::fs::statx(fd(handle), "", AtFlags::EMPTY_PATH, mask)?))
    }

    fn chmod(&self, path: &[u8], mode: u32) -> Result<()> {
        rustix::fs::chmod(path, mode_of(mode))
    }

    fn chmod_handle(&self, handle: Handle, mode: u32) -> Result<()> {
        rustix::fs::fchmod(fd(handle), mode_of(mode))
    }

    fn chown(&self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        let (uid, gid) = owners(uid, gid);
        rustix::fs::chownat(CWD, path, uid, gid, no_follow(follow))
    }

    fn chown_handle(&self, handle: Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = owners(uid, gid);
        rustix::fs::fchown(fd(handle), uid, gid)
    }

    fn utimens(&self, path: &[u8], atime: SetTime, mtime: SetTime, follow: bool) -> Result<()> {
        rustix::fs::utimensat(CWD, path, &timestamps(atime, mtime), no_follow(follow))
    }

    fn utimens_handle(&self, handle: Handle, atime: SetTime, mtime: SetTime) -> Result<()> {
        rustix::fs::futimens(fd(handle), &timestamps(atime, mtime))
    }

    fn truncate(&self, path: &[u8], len: u64) -> Result<()> {
        raw::truncate(path, len)
    }

    fn truncate_handle(&self, handle: Handle, len: u64) -> Result<()> {
        rustix::fs::ftruncate(fd(handle), len)
    }

    fn access(&self, path: &[u8], access: Access, is_effective: bool) -> Result<()> {
        raw::access(path, access, is_effective)
    }

    fn statfs(&self, path: &[u8]) -> Result<Space> {
        let stat = rustix::fs::statfs(path)?;
        Ok(Space {
            block_size: stat.f_bsize as u64,
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            name_len_max: stat.f_namelen as u64,
        })
    }

    fn read(&self, handle: Handle, buf: &mut [u8]) -> Result<usize> {
        rustix::io::read(fd(handle), buf)
    }

    fn write(&self, handle: Handle, data: &[u8]) -> Result<usize> {
        rustix::io::write(fd(handle), data)
    }

    fn read_at(&self, handle: Handle, buf: &mut [u8], offset: u64) -> Result<usize> {
        rustix::io::pread(fd(handle), buf, offset)
    }

    fn write_at(&self, handle: Handle, data: &[u8], offset: u64) -> Result<usize> {
        rustix::io::pwrite(fd(handle), data, offset)
    }

    fn seek(&self, handle: Handle, to: SeekFrom) -> Result<u64> {
        rustix::fs::seek(fd(handle), to)
    }

    fn fallocate(&self, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        rustix::fs::fallocate(fd(handle), mode, offset, len)
    }

    fn copy_range(&self, from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize> {
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        rustix::fs::copy_file_range(fd(from), Some(&mut from_offset), fd(to), Some(&mut to_offset), len)
    }

    fn sync(&self, handle: Handle, is_data_only: bool) -> Result<()> {
        if is_data_only { rustix::fs::fdatasync(fd(handle)) } else { rustix::fs::fsync(fd(handle)) }
    }

    fn sync_fs(&self, handle: Handle) -> Result<()> {
        rustix::fs::syncfs(fd(handle))
    }

    fn map(&self, handle: Handle, offset: u64, len: usize, mode: MapMode) -> Result<Box<dyn Mapping>> {
        Ok(Box::new(mapping::FileMapping::new(fd(handle), offset, len, mode)?))
    }

    fn read_dir(&self, handle: Handle, buf_len: usize) -> Result<Vec<Entry>> {
        let mut buf = Vec::with_capacity(buf_len);
        let mut stream = RawDir::new(fd(handle), buf.spare_capacity_mut());
        let mut entries = Vec::new();
        while let Some(entry) = stream.next() {
            let entry = entry?;
            entries.push(Entry {
                name: entry.file_name().to_bytes().to_vec(),
                ino: entry.ino(),
                kind: entry.file_type(),
                cookie: entry.next_entry_cookie(),
            });
            if stream.is_buffer_empty() {
                break;
            }
        }
        Ok(entries)
    }

    fn lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
        locks::set(fd(handle), owner, lock, is_waiting)
    }

    fn query_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
        locks::query(fd(handle), owner, lock)
    }

    fn flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()> {
        let operation = match (kind, is_waiting) {
            (LockKind::Read, true) => FlockOperation::LockShared,
            (LockKind::Read, false) => FlockOperation::NonBlockingLockShared,
            (LockKind::Write, true) => FlockOperation::LockExclusive,
            (LockKind::Write, false) => FlockOperation::NonBlockingLockExclusive,
            (LockKind::None, _) => FlockOperation::Unlock,
        };
        rustix::fs::flock(fd(handle), operation)
    }

    fn xattr_set(&self, path: &[u8], name: &[u8], value: &[u8], flags: XattrFlags, follow: bool) -> Result<()> {
        if follow {
            rustix::fs::setxattr(path, name, value, flags)
        } else {
            rustix::fs::lsetxattr(path, name, value, flags)
        }
    }

    fn xattr_get(&self, path: &[u8], name: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        match (buf.is_empty(), follow) {
            (true, true) => rustix::fs::getxattr_query(path, name),
            (true, false) => rustix::fs::lgetxattr_query(path, name),
            (false, true) => rustix::fs::getxattr(path, name, buf),
            (false, false) => rustix::fs::lgetxattr(path, name, buf),
        }
    }

    fn xattr_list(&self, path: &[u8], buf: &mut [u8], follow: bool) -> Result<usize> {
        match (buf.is_empty(), follow) {
            (true, true) => rustix::fs::listxattr_query(path),
            (true, false) => rustix::fs::llistxattr_query(path),
            (false, true) => rustix::fs::listxattr(path, buf),
            (false, false) => rustix::fs::llistxattr(path, buf),
        }
    }

    fn xattr_remove(&self, path: &[u8], name: &[u8], follow: bool) -> Result<()> {
        if follow { rustix::fs::removexattr(path, name) } else { rustix::fs::lremovexattr(path, name) }
    }

    fn xattr_set_handle(&self, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        rustix::fs::fsetxattr(fd(handle), name, value, flags)
    }

    fn xattr_get_handle(&self, handle: Handle, name: &[u8], buf: &mut [u8]) -> Result<usize> {
        rustix::fs::fgetxattr(fd(handle), name, buf)
    }

    fn identity(&self) -> Identity {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    fn umask(&self, mask: u32) -> u32 {
        rustix::process::umask(mode_of(mask)).as_raw_mode()
    }

    fn process(&self, who: &Identity, body: &mut (dyn FnMut(&dyn Client) + Send)) -> Result<()> {
        let current = self.identity();
        let is_change = who.uid != current.uid || who.gid != current.gid || who.groups != current.groups;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                own_descriptors()?;
                if is_change {
                    become_user(who)?;
                }
                body(&Syscalls);
                // A joined thread may still hold its table for a moment; an ended process holds nothing.
                raw::close_all()
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn descriptor(&self, handle: Handle) -> Option<BorrowedFd<'_>> {
        Some(fd(handle))
    }

    fn is_kernel(&self) -> bool {
        true
    }
}

/// Changes the credentials of this thread for good; a change away from root drops its capabilities.
pub fn become_user(who: &Identity) -> Result<()> {
    let groups: Vec<_> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn timestamps(atime: SetTime, mtime: SetTime) -> Timestamps {
    let spec = |time| match time {
        SetTime::Now => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        SetTime::Omit => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        SetTime::At(time) => rustix::fs::Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    };
    Timestamps { last_access: spec(atime), last_modification: spec(mtime) }
}

fn attr(found: &Statx) -> Attr {
    let time = |time: StatxTimestamp| Time { sec: time.tv_sec, nsec: time.tv_nsec };
    let has_btime = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    Attr {
        ino: found.stx_ino,
        mode: found.stx_mode.into(),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        rdev: (found.stx_rdev_major, found.stx_rdev_minor),
        size: found.stx_size,
        blocks: found.stx_blocks,
        blksize: found.stx_blksize,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        btime: has_btime.then(|| time(found.stx_btime)),
    }
}
