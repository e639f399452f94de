//! Locks kept by the server. Local locks, which a kernel keeps if the server does not, do not exist here.

use std::sync::atomic::Ordering;

use transom_conformance::client::{Errno, Handle, Lock, LockKind, LockOwner};
use transom_wire::ops::{
    init::InitFlags,
    lk::{FileLock, LK_FLOCK, LkIn},
};

use transom_wire::linux::{F_RDLCK, F_UNLCK, F_WRLCK};

use super::{
    errno::{Result, from_guest},
    file::OpenFile,
    process::Process,
};

const END: u64 = i64::MAX as u64;

impl Process<'_> {
    /// What the server knows this process's locks by.
    pub(crate) fn lock_owner(&self) -> u64 {
        u64::from(self.pid)
    }

    pub(crate) fn set_lock(&self, handle: Handle, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
        let file = self.usable(handle)?;
        let request = self.request(&file, owner, lock)?;
        let session = &self.vfs.session;
        let done = if is_waiting {
            session.setlkw(&self.caller(), file.node.id, &request)
        } else {
            session.setlk(&self.caller(), file.node.id, &request)
        };
        done.map_err(from_guest)
    }

    pub(crate) fn find_lock(&self, handle: Handle, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
        let file = self.usable(handle)?;
        let request = self.request(&file, owner, lock)?;
        let found = self.vfs.session.getlk(&self.caller(), file.node.id, &request).map_err(from_guest)?;
        let kind = match found.type_.get() {
            F_RDLCK => LockKind::Read,
            F_WRLCK => LockKind::Write,
            _ => return Ok((Lock { kind: LockKind::None, ..lock }, 0)),
        };
        let (start, end) = (found.start.get(), found.end.get());
        let len = if end >= END { 0 } else { end - start + 1 };
        Ok((Lock { kind, start, len }, found.pid.get() as i32))
    }

    pub(crate) fn set_flock(&self, handle: Handle, kind: LockKind, is_waiting: bool) -> Result<()> {
        if !self.has(InitFlags::FLOCK_LOCKS) {
            return Err(Errno::NOSYS);
        }
        let file = self.usable(handle)?;
        let request = LkIn { lk_flags: LK_FLOCK.into(), ..lk_in(&file, description(&file), kind, 0, END, self.pid)? };
        let session = &self.vfs.session;
        let done = if is_waiting {
            session.setlkw(&self.caller(), file.node.id, &request)
        } else {
            session.setlk(&self.caller(), file.node.id, &request)
        };
        done.map_err(from_guest)
    }

    fn request(&self, file: &OpenFile, owner: LockOwner, lock: Lock) -> Result<LkIn> {
        if !self.has(InitFlags::POSIX_LOCKS) {
            return Err(Errno::NOSYS);
        }
        let end = match lock.len {
            0 => END,
            len => lock.start.checked_add(len - 1).filter(|&end| end <= END).ok_or(Errno::OVERFLOW)?,
        };
        match lock.kind {
            LockKind::Write => _ = file.for_writing()?,
            LockKind::Read => _ = file.for_reading()?,
            LockKind::None => {}
        }
        let owner = match owner {
            LockOwner::Process => self.lock_owner(),
            LockOwner::Description => {
                file.is_locked.store(true, Ordering::Relaxed);
                description(file)
            }
        };
        lk_in(file, owner, lock.kind, lock.start, end, self.pid)
    }
}

/// Unlike the number of any process.
pub(crate) fn description(file: &OpenFile) -> u64 {
    std::ptr::from_ref(file) as u64
}

/// What gives back all that the description has locked.
pub(crate) fn unlock_description(file: &OpenFile) -> Result<LkIn> {
    lk_in(file, description(file), LockKind::None, 0, END, 0)
}

fn lk_in(file: &OpenFile, owner: u64, kind: LockKind, start: u64, end: u64, pid: u32) -> Result<LkIn> {
    let type_ = match kind {
        LockKind::Read => F_RDLCK,
        LockKind::Write => F_WRLCK,
        LockKind::None => F_UNLCK,
    };
    let lk = FileLock { start: start.into(), end: end.into(), type_: type_.into(), pid: pid.into() };
    Ok(LkIn { fh: file.fh()?.into(), owner: owner.into(), lk, lk_flags: 0.into(), padding: 0.into() })
}
