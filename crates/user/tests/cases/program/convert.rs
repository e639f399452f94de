//! Conversions between the types of the cases and those of the library, and owners of locks.

use std::sync::atomic::{AtomicU64, Ordering};

use transom_conformance::client::{Errno, LockKind, Result, SetTime, Time};
use transom_user::guest::volume;

/// Copies `value` to `buf` if that is not empty, and returns its length, as getxattr(2) does.
pub(super) fn fill(buf: &mut [u8], value: &[u8]) -> Result<usize> {
    if !buf.is_empty() {
        buf.get_mut(..value.len()).ok_or(Errno::RANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}

pub(super) fn errno(errno: transom_user::guest::Errno) -> Errno {
    Errno::from_raw_os_error(errno.raw())
}

pub(super) fn set_time(time: SetTime) -> volume::SetTime {
    match time {
        SetTime::Now => volume::SetTime::Now,
        SetTime::Omit => volume::SetTime::Keep,
        SetTime::At(Time { sec, nsec }) => volume::SetTime::At(sec, nsec),
    }
}

pub(super) fn lock_kind(kind: LockKind) -> volume::LockKind {
    match kind {
        LockKind::Read => volume::LockKind::Shared,
        LockKind::Write => volume::LockKind::Exclusive,
        LockKind::None => volume::LockKind::Unlocked,
    }
}

/// Returns an owner of locks that no other process has. Cases run side by side in one session: with an owner in common
/// they would wait for each other.
pub(super) fn new_lock_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
