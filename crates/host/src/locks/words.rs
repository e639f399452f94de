//! Translates locks between FUSE and the host.

use rustix::io::Errno;
use transom_wire::ops::lk::{FileLock, LK_FLOCK, LkIn};

use super::Obstacle;
use crate::sysfd::ofd::{FileRange, LockKind};

/// The arguments of GETLK, SETLK or SETLKW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The range of a POSIX lock; a flock covers the whole file.
    pub range: FileRange,
    /// The lock; `None` unlocks.
    pub kind: Option<LockKind>,
    /// True for flock(2).
    pub is_flock: bool,
}

impl Wish {
    /// Parses `arg`. Errors: EINVAL for an invalid type, flag or range.
    pub(crate) fn read(arg: &LkIn) -> Result<Self, Errno> {
        let kind = match libc::c_int::try_from(arg.lk.type_.get()) {
            Ok(libc::F_RDLCK) => Some(LockKind::Shared),
            Ok(libc::F_WRLCK) => Some(LockKind::Exclusive),
            Ok(libc::F_UNLCK) => None,
            _ => return Err(Errno::INVAL),
        };
        let is_flock = match arg.lk_flags.get() {
            0 => false,
            LK_FLOCK => true,
            _ => return Err(Errno::INVAL),
        };
        let range = if is_flock { FileRange::ALL } else { FileRange::new(arg.lk.start.get(), arg.lk.end.get())? };
        Ok(Self { range, kind, is_flock })
    }
}

/// Returns the reply to GETLK: the conflicting lock, or F_UNLCK.
///
/// Linux looks the pid up in the mount's pid namespace and shows 0 if there is no such process. It does so for -1 too,
/// which is what fcntl(2) reports for the lock of a description: a lock of the host or of another guest has pid 0
/// here.
pub(crate) fn answer(obstacle: Option<Obstacle>) -> FileLock {
    let free = FileLock { start: 0.into(), end: 0.into(), type_: (libc::F_UNLCK as u32).into(), pid: 0.into() };
    obstacle.map_or(free, |Obstacle { range, kind, pid }| {
        let type_ = match kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        };
        FileLock { start: range.start().into(), end: range.end().into(), type_: (type_ as u32).into(), pid: pid.into() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(type_: u32, start: u64, end: u64, lk_flags: u32) -> Result<Wish, Errno> {
        let lk = FileLock { start: start.into(), end: end.into(), type_: type_.into(), pid: 9.into() };
        Wish::read(&LkIn { fh: 0.into(), owner: 0.into(), lk, lk_flags: lk_flags.into(), padding: 0.into() })
    }

    #[test]
    fn wishes_are_read_and_nonsense_is_einval() {
        let range = FileRange::new(3, 9).unwrap();
        assert_eq!(ask(0, 3, 9, 0), Ok(Wish { range, kind: Some(LockKind::Shared), is_flock: false }));
        assert_eq!(ask(2, 3, 9, 0), Ok(Wish { range, kind: None, is_flock: false }));
        let flock = Wish { range: FileRange::ALL, kind: Some(LockKind::Exclusive), is_flock: true };
        assert_eq!(ask(1, 7, 3, LK_FLOCK), Ok(flock));
        for (type_, start, end, flags) in [(3, 0, 1, 0), (u32::MAX, 0, 1, 0), (0, 2, 1, 0), (0, 0, 1, 2)] {
            assert_eq!(ask(type_, start, end, flags), Err(Errno::INVAL));
        }
    }

    #[test]
    fn answers_have_the_range_and_the_holder() {
        assert_eq!(answer(None).type_.get(), 2);
        let range = FileRange::new(10, u64::MAX).unwrap();
        let lock = answer(Some(Obstacle { range, kind: LockKind::Exclusive, pid: 77 }));
        assert_eq!((lock.start.get(), lock.end.get()), (10, i64::MAX as u64));
        assert_eq!((lock.type_.get(), lock.pid.get()), (1, 77));
    }
}
