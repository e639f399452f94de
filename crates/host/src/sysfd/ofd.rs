//! Record locks owned by an open file description (`F_OFD_*`), which rustix does not have.
//!
//! [`FileRange`] and [`LockKind`] describe a lock; `crate::locks` records who holds which.

#![expect(unsafe_code, reason = "fcntl takes a pointer, and rustix has only process-owned locks")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::checked;

/// Bytes of a file, as FUSE and fcntl count them: `end` is the last one, and `i64::MAX` stands for all future ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    start: i64,
    end: i64,
}

/// Whether a lock is shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// `F_RDLCK`: the description must be open for reading.
    Shared,
    /// `F_WRLCK`: the description must be open for writing.
    Exclusive,
}

/// A conflicting lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// Its bytes.
    pub range: FileRange,
    /// Its kind.
    pub kind: LockKind,
    /// The process of this host that holds it; `None` if it belongs to a description or to another machine.
    pub pid: Option<u32>,
}

impl FileRange {
    /// The whole file, whatever its size becomes.
    pub const ALL: Self = Self { start: 0, end: i64::MAX };

    /// Creates a range. Errors: EINVAL if a bound is not a file offset or `end` lies before `start`.
    pub fn new(start: u64, end: u64) -> Result<Self, Errno> {
        let start = i64::try_from(start).map_err(|_| Errno::INVAL)?;
        // Linux sends OFFSET_MAX for the end of the file; libfuse's `u64::MAX` means the same.
        let end = i64::try_from(end).unwrap_or(i64::MAX);
        if end < start { Err(Errno::INVAL) } else { Ok(Self { start, end }) }
    }

    /// Returns the first byte.
    pub fn start(self) -> u64 {
        self.start.cast_unsigned()
    }

    /// Returns the last byte.
    pub fn end(self) -> u64 {
        self.end.cast_unsigned()
    }

    /// Returns true for [`FileRange::ALL`].
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    fn to_flock(self, type_: libc::c_int) -> libc::flock {
        // A length of 0 extends to the end of the file. Otherwise `end - start` is below i64::MAX, so adding 1 does
        // not overflow.
        let len = if self.end == i64::MAX { 0 } else { self.end - self.start + 1 };
        libc::flock {
            l_type: type_ as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.start,
            l_len: len,
            // The commands for descriptions require 0 here.
            l_pid: 0,
        }
    }
}

/// Takes a lock without waiting, replacing locks of the description where they overlap. Errors: EAGAIN if another lock
/// conflicts.
pub fn try_lock(fd: impl AsFd, range: FileRange, kind: LockKind) -> Result<(), Errno> {
    // For a conflicting lock, POSIX and other systems also return EACCES.
    match fcntl(fd, libc::F_OFD_SETLK, &mut range.to_flock(kind.to_raw())) {
        Err(Errno::ACCESS) => Err(Errno::AGAIN),
        outcome => outcome,
    }
}

/// Takes a lock, waiting while another lock conflicts. Errors: EINTR after a signal.
pub fn lock(fd: impl AsFd, range: FileRange, kind: LockKind) -> Result<(), Errno> {
    fcntl(fd, libc::F_OFD_SETLKW, &mut range.to_flock(kind.to_raw()))
}

/// Releases the locks of `fd`'s description in `range`.
pub fn unlock(fd: impl AsFd, range: FileRange) -> Result<(), Errno> {
    fcntl(fd, libc::F_OFD_SETLK, &mut range.to_flock(libc::F_UNLCK))
}

/// Returns the first lock that conflicts with `kind` on `range`, if there is one.
pub fn conflict(fd: impl AsFd, range: FileRange, kind: LockKind) -> Result<Option<Conflict>, Errno> {
    let mut flock = range.to_flock(kind.to_raw());
    fcntl(fd, libc::F_OFD_GETLK, &mut flock)?;
    let kind = match libc::c_int::from(flock.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockKind::Shared,
        _ => LockKind::Exclusive,
    };
    let end = if flock.l_len == 0 { i64::MAX } else { flock.l_start.saturating_add(flock.l_len - 1) };
    let pid = u32::try_from(flock.l_pid).ok().filter(|&pid| pid != 0);
    Ok(Some(Conflict { range: FileRange { start: flock.l_start, end }, kind, pid }))
}

impl LockKind {
    fn to_raw(self) -> libc::c_int {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
        }
    }
}

fn fcntl(fd: impl AsFd, command: libc::c_int, flock: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: every command passed to this function is an F_OFD_ one, which reads and writes one `struct flock` and
    // keeps no pointer to it; `flock` is exclusively ours meanwhile.
    checked(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, std::ptr::from_mut(flock)) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn twice() -> (tempfile::NamedTempFile, File) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let again = File::options().read(true).write(true).open(file.path()).unwrap();
        (file, again)
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(FileRange::new(5, 4), Err(Errno::INVAL));
        assert_eq!(FileRange::new(1 << 63, u64::MAX), Err(Errno::INVAL));
        let whole = FileRange::new(0, u64::MAX).unwrap();
        assert_eq!((whole.start(), whole.end()), (0, i64::MAX as u64));
        assert_eq!(FileRange::new(0, i64::MAX as u64 - 1).unwrap().to_flock(0).l_len, i64::MAX);
    }

    #[test]
    fn a_lock_of_one_description_is_in_the_way_of_another() {
        let (one, two) = twice();
        let middle = FileRange::new(10, 19).unwrap();
        try_lock(&one, middle, LockKind::Exclusive).unwrap();
        assert_eq!(try_lock(&two, FileRange::new(19, 30).unwrap(), LockKind::Shared), Err(Errno::AGAIN));
        assert_eq!(try_lock(&two, FileRange::new(20, u64::MAX).unwrap(), LockKind::Exclusive), Ok(()));
        let found = conflict(&two, FileRange::new(0, 100).unwrap(), LockKind::Shared).unwrap();
        assert_eq!(found, Some(Conflict { range: middle, kind: LockKind::Exclusive, pid: None }));
        let tail = conflict(&one, FileRange::new(0, 100).unwrap(), LockKind::Shared).unwrap().unwrap();
        assert_eq!((tail.range.start(), tail.range.end()), (20, i64::MAX as u64));
        unlock(&one, FileRange::new(0, 14).unwrap()).unwrap();
        assert_eq!(try_lock(&two, FileRange::new(0, 14).unwrap(), LockKind::Exclusive), Ok(()));
        drop(one.into_file());
        assert_eq!(conflict(&two, FileRange::new(0, u64::MAX).unwrap(), LockKind::Exclusive), Ok(None));
    }
}
